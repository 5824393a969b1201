-- What all scripts share. Times are microseconds of Redis' own clock, as whole
-- numbers: below 2^53, so that Lua's numbers hold them exactly. Nothing here
-- reads a caller's clock. Every key gets its end in the command that writes it.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local POOL, LEASE, MOST_DEBT = 0.75, 1000000, 4

local function round(x) return math.floor(x + 0.5) end
local function whole(x) return string.format('%.0f', x) end

-- read returns the numbers of a value written by write; of anything else
-- nothing, so that it is replaced.
local function read(key)
	local value = redis.pcall('GET', key)
	if type(value) ~= 'string' then
		return {}
	end
	local numbers = {}
	for word in string.gmatch(value, '%S+') do
		local n = tonumber(word)
		if not n or n ~= n then
			return {}
		end
		numbers[#numbers + 1] = n
	end
	return numbers
end

-- write keeps a value for some microseconds, at least a millisecond.
local function write(key, value, life)
	redis.call('SET', key, value, 'PX', whole(math.max(1, math.ceil(life / 1000))))
end

local function keep_debt(key, debt, cost)
	if debt > 0 then
		write(key, whole(now + debt) .. ' ' .. string.format('%.17g', cost), debt)
	else
		redis.call('DEL', key)
	end
end

-- debt_of reads a token bucket. More than any fleet can have spent between two
-- reports is no debt but a fault: it is put right, and the key is served again.
local function debt_of(key, cost, deep)
	local kept = read(key)
	local debt = math.max(0, (kept[1] or 0) - now)
	if kept[2] and kept[2] > 0 and kept[2] ~= cost then
		debt = debt * cost / kept[2]
	end
	if debt > MOST_DEBT * deep + 10 * LEASE then
		debt = deep
		keep_debt(key, debt, cost)
	end
	return round(debt)
end

-- period_of reads a counter of periods and returns what is counted in the present
-- one, and its end. A kept end stands while it lies ahead; one that no caller
-- could have given is a fault.
local function period_of(key, stop, following)
	if stop <= now then
		stop = following
	end
	local kept = read(key)
	local count, ends = kept[1] or 0, kept[2] or 0
	if ends <= now or ends > math.max(stop, following) then
		return 0, stop
	end
	return count, ends
end

local function keep_period(key, count, ends)
	write(key, whole(count) .. ' ' .. whole(ends), ends - now)
end

-- lend returns the share of a bucket that host may use for a LEASE: its part of
-- the POOL by demand, as far as others have given up theirs. What it used before
-- stays taken until it reports that it uses less.
local function lend(key, host, share, demand)
	local sum, taken = demand, 0
	local all = redis.pcall('HGETALL', key)
	if all.err then
		redis.call('DEL', key)
		all = {}
	end
	for i = 1, #all, 2 do
		local s, d, ends = string.match(all[i + 1], '^(%S+) (%S+) (%S+)$')
		ends = tonumber(ends)
		if not ends or ends <= now then
			redis.call('HDEL', key, all[i])
		elseif all[i] ~= host then
			sum = sum + tonumber(d)
			taken = taken + tonumber(s)
		end
	end
	local part = POOL
	if sum > 0 then
		part = POOL * demand / sum
	end
	part = math.max(0, math.min(part, POOL - taken))
	redis.call('HSET', key, host, string.format('%.17g %.17g %s', math.max(part, share), demand, whole(now + LEASE)))
	redis.call('PEXPIRE', key, 2 * LEASE / 1000)
	return part
end
