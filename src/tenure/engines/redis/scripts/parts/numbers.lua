-- Whole numbers of 64 bits. Lua counts in doubles, which are exact up to 2^53 only: the store's time
-- is below, but tokens, ranks and times that users give need not be. So numbers are kept and passed
-- on as decimal text, and calculated with as doubles only where these are exact.

local BILLION, TWO32, TWO31, EXACT = 1000000000, 4294967296, 2147483648, 9007199254740992

local function text(number)
  return string.format("%.0f", number)
end

-- Whether a number, given as text, surely is an exact double.
local function is_small(digits)
  return #digits < 16 or (#digits == 16 and string.byte(digits) < 57)
end

-- A number, given as text, as high * 10^9 + low, with low from 0 to 10^9 - 1.
local function halves(digits)
  local minus = string.byte(digits) == 45
  if minus then
    digits = string.sub(digits, 2)
  end
  local high = tonumber(string.sub(digits, 1, -10)) or 0
  local low = tonumber(string.sub(digits, -9))
  if minus then
    high = -high
    if low > 0 then
      high, low = high - 1, BILLION - low
    end
  end
  return high, low
end

-- The other way round.
local function whole(high, low)
  local sign = ""
  if high < 0 then
    sign, high = "-", -high
    if low > 0 then
      high, low = high - 1, BILLION - low
    end
  end
  if high == 0 then
    return sign .. text(low)
  end
  return sign .. text(high) .. string.format("%09.0f", low)
end

-- a + b, all as text.
local function sum(a, b)
  if is_small(a) and is_small(b) then
    local number = tonumber(a) + tonumber(b)
    if number < EXACT and number > -EXACT then
      return text(number)
    end
  end
  local high, low = halves(a)
  local more_high, more_low = halves(b)
  high, low = high + more_high, low + more_low
  if low >= BILLION then
    high, low = high + 1, low - BILLION
  end
  return whole(high, low)
end

-- a < b, given as text.
local function is_less(a, b)
  local high, low = halves(a)
  local other_high, other_low = halves(b)
  return high < other_high or (high == other_high and low < other_low)
end

-- The 8 bytes, big-endian, of a number + 2^63: texts of bytes in the order of the numbers.
local function place(digits)
  local high, low
  if is_small(digits) then
    local number = tonumber(digits)
    high = math.floor(number / TWO32)
    low = number - high * TWO32
  else
    local minus = string.byte(digits) == 45
    local billions, rest = halves(minus and string.sub(digits, 2) or digits)
    local upper = math.floor(billions / 65536) * BILLION
    low = upper % 65536 * 65536 + billions % 65536 * BILLION + rest
    high = math.floor(upper / 65536) + math.floor(low / TWO32)
    low = low % TWO32
    if minus then
      high = -high
      if low > 0 then
        high, low = high - 1, TWO32 - low
      end
    end
  end
  return struct.pack(">I4I4", high + TWO31, low)
end

-- Whether a text of bytes comes before another. Not by `<`, which goes by the server's locale.
local function is_before(a, b)
  local shorter = math.min(#a, #b)
  for i = 1, shorter do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end
