-- decide asks for one request of all the limits of a decision: it charges all
-- of them, or none. It follows common.lua.
--
-- KEYS  the state of each limit
-- ARGV  1: a word that no other decision has
--       2: "ask"; "charge": one that was refused elsewhere, charged to those
--          that count what is refused; "refund": what was asked with this word
--          and admitted is given back, for something else refused it
--       then for each limit seven: kind (bucket, log, counter, fixed, quota),
--       cost of a request (bucket) or window, most at once, the line (most
--       without the soft part), the period's end and the end of the one after
--       (quota), flags (w: watches, a: counts what is refused)
-- returns the time, 1 if it may pass, then for each limit five: 1 if it
--         refuses, left, wait, how long until one more is below the line, how
--         long until nothing is charged
--
-- A log is a sorted set of moments, members unique. A counter is limit.Counter:
-- up to 16 groups of {newest, count}, and the oldest member of the newest group.

local GROUPS = 16
local kinds = {}

-- Each kind: load(limit) finds how things stand, left(limit) how many more fit,
-- add(limit) charges one, sub(limit) takes it back, wait(limit, n) how long
-- until less than n are charged, reset(limit) how long until none is.

kinds.bucket = {
	load = function(l)
		l.deep = round(l.most * l.size)
		l.debt = debt_of(l.key, l.size, l.deep)
	end,
	left = function(l)
		local room = l.deep - l.debt
		return room >= round(l.size) and math.floor((room + 0.5) / l.size) or 0
	end,
	add = function(l)
		l.debt = math.min(l.deep, round(l.debt + l.size))
		keep_debt(l.key, l.debt, l.size)
	end,
	sub = function(l)
		l.debt = math.max(0, round(l.debt - l.size))
		keep_debt(l.key, l.debt, l.size)
	end,
	wait = function(l, n)
		local room = round(n * l.size) - l.debt
		return room >= round(l.size) and 0 or math.ceil(l.size - room)
	end,
	reset = function(l) return l.debt end,
}

kinds.quota = {
	load = function(l) l.count, l.ends = period_of(l.key, l.stop, l.following) end,
	left = function(l) return math.max(0, l.most - l.count) end,
	add = function(l)
		l.count = math.min(l.most, l.count + 1)
		keep_period(l.key, l.count, l.ends)
	end,
	sub = function(l)
		l.count = math.max(0, l.count - 1)
		keep_period(l.key, l.count, l.ends)
	end,
	wait = function(l, n) return l.count < n and 0 or l.ends - now end,
	reset = function(l) return l.count > 0 and l.ends - now or 0 end,
}

-- A fixed window is cut by Redis' own clock.
kinds.fixed = {
	load = function(l)
		local ends = (math.floor(now / l.size) + 1) * l.size
		l.count, l.ends = period_of(l.key, ends, ends)
	end,
	left = kinds.quota.left, add = kinds.quota.add, sub = kinds.quota.sub,
	wait = kinds.quota.wait, reset = kinds.quota.reset,
}

kinds.log = {
	load = function(l)
		local cleared = redis.pcall('ZREMRANGEBYSCORE', l.key, '-inf', whole(now - l.size))
		if type(cleared) == 'table' and cleared.err then
			redis.call('DEL', l.key)
		end
		-- A moment that has not come yet was not written here.
		redis.call('ZREMRANGEBYSCORE', l.key, '(' .. whole(now), '+inf')
		l.count = redis.call('ZCARD', l.key)
	end,
	left = kinds.quota.left,
	add = function(l)
		if l.count >= l.most then
			redis.call('ZREMRANGEBYRANK', l.key, 0, l.count - l.most)
		end
		redis.call('ZADD', l.key, whole(now), ARGV[1])
		redis.call('PEXPIRE', l.key, whole(math.ceil(l.size / 1000)))
		l.count = math.min(l.most, l.count + 1)
	end,
	sub = function(l) l.count = l.count - redis.call('ZREM', l.key, ARGV[1]) end,
	wait = function(l, n)
		if l.count < n then
			return 0
		end
		local at = redis.call('ZRANGE', l.key, l.count - n, l.count - n, 'WITHSCORES')
		return math.max(0, tonumber(at[2]) + l.size - now)
	end,
	reset = function(l)
		local at = redis.call('ZRANGE', l.key, -1, -1, 'WITHSCORES')
		return at[2] and math.max(0, tonumber(at[2]) + l.size - now) or 0
	end,
}

local function keep_groups(l)
	local words = { whole(l.first) }
	for _, g in ipairs(l.groups) do
		words[#words + 1] = whole(g[1])
		words[#words + 1] = whole(g[2])
	end
	write(l.key, table.concat(words, ' '), l.size)
end

kinds.counter = {
	load = function(l)
		local kept = read(l.key)
		l.first, l.groups, l.count = kept[1] or 0, {}, 0
		for i = 2, #kept - 1, 2 do
			local newest = kept[i]
			if newest + l.size > now and newest <= now then
				l.groups[#l.groups + 1] = { newest, kept[i + 1] }
				l.count = l.count + kept[i + 1]
			end
		end
	end,
	left = kinds.quota.left,
	add = function(l)
		local span = math.ceil(l.size / (GROUPS - 1))
		local last = l.groups[#l.groups]
		if last and (now - l.first < span or #l.groups == GROUPS) then
			last[1], last[2] = now, last[2] + 1
		else
			l.first = now
			l.groups[#l.groups + 1] = { now, 1 }
		end
		l.count = l.count + 1
		keep_groups(l)
	end,
	sub = function(l)
		local last = l.groups[#l.groups]
		if last and last[2] > 0 then
			last[2], l.count = last[2] - 1, l.count - 1
			keep_groups(l)
		end
	end,
	wait = function(l, n)
		local left, at = l.count, 0
		for _, g in ipairs(l.groups) do
			if left < n then
				break
			end
			left, at = left - g[2], g[1] + l.size
		end
		return math.max(0, at - now)
	end,
	reset = function(l)
		local last = l.groups[#l.groups]
		return last and math.max(0, last[1] + l.size - now) or 0
	end,
}

local limits, passes = {}, ARGV[2] == 'ask'
for i = 1, #KEYS do
	local a = 2 + 7 * (i - 1)
	local flags = ARGV[a + 7]
	local l = {
		key = KEYS[i], kind = kinds[ARGV[a + 1]],
		size = tonumber(ARGV[a + 2]), most = tonumber(ARGV[a + 3]), line = tonumber(ARGV[a + 4]),
		stop = tonumber(ARGV[a + 5]), following = tonumber(ARGV[a + 6]),
		watches = string.find(flags, 'w', 1, true), always = string.find(flags, 'a', 1, true),
	}
	l.kind.load(l)
	l.refuses = l.kind.left(l) < 1
	if l.refuses and not l.watches then
		passes = false
	end
	limits[i] = l
end

local replies = { whole(now), passes and 1 or 0 }
for _, l in ipairs(limits) do
	if ARGV[2] == 'refund' then
		l.kind.sub(l)
	elseif passes and not l.refuses or l.always then
		l.kind.add(l)
	end
	replies[#replies + 1] = l.refuses and 1 or 0
	replies[#replies + 1] = whole(l.kind.left(l))
	replies[#replies + 1] = whole(l.kind.wait(l, l.most))
	replies[#replies + 1] = whole(l.kind.wait(l, l.line))
	replies[#replies + 1] = whole(l.kind.reset(l))
end
return replies
