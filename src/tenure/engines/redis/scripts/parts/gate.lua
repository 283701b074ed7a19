-- What limits say to the due jobs of one claim: see tenure.core.limits.Gate. Needs limits.

-- Made when it is needed; `flow` as limits.lua makes it.
local function make_gate(flow)
  -- How many jobs of a limited queue may be started now, at most `most`.
  local function room_of(queue, given, now_text, most)
    local room = most
    if given.concurrency then
      room = math.max(0, math.min(room, given.concurrency - flow.running_in(queue)))
    end
    if given.rate then
      room = flow.starts(given.rate, flow.cell_of(queue, "").arrival, now_text, room)
    end
    return room
  end

  -- `admit` says whether a job may start, and counts it, or notes it as parked; `close` writes what
  -- follows from it all.
  local function new_gate(now_text)
    local gate = {closed = false}
    local running, cells, parked, taken = {}, {}, {}, {}

    local function park(id, row, reason)
      parked[#parked + 1] = {id, row, reason}
      gate.closed = #parked >= PARKED_MAX
      return false
    end

    function gate.admit(id, row, given)
      local queue = queue_of(row[LANE])
      local held = given.key_concurrency and row[CKEY] and slots_key(row)
      local cell
      if held then
        running[held] = running[held] or call("SCARD", held)
        if running[held] >= given.key_concurrency then
          return park(id, row, "concurrency")
        end
      end
      if given.key_rate and row[RKEY] then
        local name = lane_of(queue, row[RKEY])
        cell = cells[name]
        if not cell then
          cell = {queue = queue, key = row[RKEY], rate = given.key_rate}
          cell.before = flow.cell_of(queue, row[RKEY])
          cell.arrival, cell.wake = cell.before.arrival, cell.before.wake
          cells[name] = cell
        end
        local count, arrival = flow.starts(cell.rate, cell.arrival, now_text, 1)
        cell.touched = true
        if count == 0 then
          cell.waits = true
          return park(id, row, "rate")
        end
        cell.arrival = arrival
      end
      if held then
        running[held] = running[held] + 1
      end
      taken[queue] = (taken[queue] or 0) + 1
      return true
    end

    function gate.close(limited, freed)
      for queue, count in pairs(taken) do
        local rate = limited[queue].rate
        if rate then
          local before = flow.cell_of(queue, "")
          local arrival = flow.from_now(rate, before.arrival, now_text)
          for _ = 1, count do
            arrival = sum(arrival, rate.interval)
          end
          flow.keep_cell(queue, "", before, arrival, before.wake)
        end
      end
      for _, cell in pairs(cells) do
        if cell.waits then
          cell.wake = flow.next_start(cell.rate, cell.arrival, now_text)
        end
        flow.keep_cell(cell.queue, cell.key, cell.before, cell.arrival or now_text, cell.wake)
      end
      for i, one in ipairs(parked) do
        local id, row, reason = unpack(one)
        if i == 1 then
          begin_writing()
        end
        if reason == "rate" then
          note_freed(freed, row)
        end
        step_out(id, row)
        row[STATE] = reason
        call("HSET", job_key(id), "state", reason)
        lines().hold_back(id, row)
      end
    end

    return gate
  end

  -- Make ready the blocked jobs of these queues whose rate allows more; of `most` keys.
  local function wake_rates(queues, limited, most, now_text, woken)
    local due = {}
    for _, queue in ipairs(queues) do
      local rate = limited[queue] and limited[queue].key_rate
      if rate then
        local wakes = PREFIX .. "wakes:" .. queue
        local now_place = place(sum(now_text, "1"))
        local far = place(sum(sum(now_text, rate.longest), "1"))
        for _, range in ipairs({{"-", "(" .. now_place}, {"[" .. far, "+"}}) do
          for _, member in ipairs(call("ZRANGEBYLEX", wakes, range[1], range[2], "LIMIT", 0, most)) do
            due[#due + 1] = {string.sub(member, 1, 8) .. queue, string.sub(member, 9), queue}
          end
        end
      end
    end
    table.sort(due, function(one, other)
      if one[1] ~= other[1] then
        return is_before(one[1], other[1])
      end
      return is_before(one[2], other[2])
    end)
    for i = 1, math.min(#due, most) do
      local key, queue = due[i][2], due[i][3]
      local rate, cell = limited[queue].key_rate, flow.cell_of(queue, key)
      local count, arrival = flow.starts(rate, cell.arrival, now_text, most)
      if i == 1 then
        begin_writing()
      end
      local more = flow.unblock_first("rate", queue, key, count, woken)
      local wake = more and flow.next_start(rate, arrival, now_text) or nil
      flow.keep_cell(queue, key, cell, cell.arrival, wake)
    end
  end

  return {room_of = room_of, new = new_gate, wake_rates = wake_rates}
end
