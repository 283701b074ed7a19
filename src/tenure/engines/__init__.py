"""Where jobs are kept. An engine applies settlements and answers queries; it holds no rules."""
