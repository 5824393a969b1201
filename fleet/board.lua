-- board keeps what holds on all hosts of a fleet: notices, each with a version
-- later than all before, and an end. It follows common.lua, and board.Model is
-- its model.
--
-- KEYS  1: notices, by id   2: their order, by version   3: when they are forgotten
--       4: the stream that wakes hosts   5: what hosts say of themselves
--       6: the version given last, and the sum of all versions
-- ARGV  1: this host   2: what it says of itself   3: what is asked
--   pull   4: after which version   5: how many at most
--          returns the time, the version given last, how many notices there
--          are, their sum, 1 if there are later ones, then the notices
--   post   4: a version   then five for each: id, how long it lasts (0: for
--          ever), until when what it takes the place of is kept, 1 if it is
--          gone, what it says
--          returns the time, then three for each: version, end, keep
--   merge  then six for each notice
--          returns the time
--   hosts  returns the time, the version given last, then two for each host
-- A notice is: id, version, end (0: never), until when it is kept, 1 if it is
-- gone, what it says

local MODULO, MOST, GRACE, EVER = 1000000007, 20000, 60000000, 9007199254740991
local DAY = 86400000000
local REMEMBERED = 90 * DAY

for i, kind in ipairs({ 'hash', 'zset', 'zset', 'stream', 'hash', 'hash' }) do
	local found = redis.call('TYPE', KEYS[i]).ok
	if found ~= kind and found ~= 'none' then
		redis.call('DEL', KEYS[i])
	end
end
local newest = tonumber(redis.call('HGET', KEYS[6], 'newest') or '') or 0
local sum = tonumber(redis.call('HGET', KEYS[6], 'sum') or '') or 0

-- read returns version, end, keep, gone and text of a notice; nothing where there is
-- none, or none that a host could have written.
local function read(id)
	local value = redis.call('HGET', KEYS[1], id)
	if not value then
		return nil
	end
	local version, ends, keep, gone, at = string.match(value, '^(%d+) (%d+) (%d+) ([01]) ()')
	if not version then
		redis.call('HDEL', KEYS[1], id)
		return nil
	end
	return tonumber(version), tonumber(ends), tonumber(keep), gone, string.sub(value, at)
end

local function drop(id)
	local version = read(id)
	if version then
		sum = (sum - version) % MODULO
	end
	redis.call('HDEL', KEYS[1], id)
	redis.call('ZREM', KEYS[2], id)
	redis.call('ZREM', KEYS[3], id)
end

local function put(id, version, ends, keep, gone, text)
	drop(id)
	redis.call('HSET', KEYS[1], id, table.concat({ whole(version), whole(ends), whole(keep), gone, text }, ' '))
	redis.call('ZADD', KEYS[2], whole(version), id)
	redis.call('ZADD', KEYS[3], whole(keep), id)
	sum = (sum + version) % MODULO
end

local function wake()
	redis.call('XADD', KEYS[4], 'MAXLEN', '~', '100', whole(newest) .. '-0', 'n', '1')
end

local function room(ids)
	if redis.call('HLEN', KEYS[1]) + ids > MOST then
		return redis.error_reply('FULL the fleet has ' .. MOST .. ' blocks, allows and rules for all hosts: take some down, or use a list')
	end
end

for _, id in ipairs(redis.call('ZRANGE', KEYS[3], '-inf', whole(now), 'BYSCORE')) do
	drop(id)
end

local asked, replies = ARGV[3], { whole(now) }
if asked == 'post' then
	local full = room((#ARGV - 4) / 5)
	if full then
		return full
	end
	local version = math.max(now, newest + 1, tonumber(ARGV[4]) + 1)
	for a = 5, #ARGV, 5 do
		local life, gone = tonumber(ARGV[a + 1]), ARGV[a + 3]
		local ends = life > 0 and now + life or 0
		local keep = ends + GRACE
		if gone == '1' then
			keep = now + GRACE
		elseif ends == 0 then
			keep = EVER
		end
		local _, _, before = read(ARGV[a])
		before = math.max(before or 0, tonumber(ARGV[a + 2]))
		keep = math.max(keep, math.min(before, now + REMEMBERED))
		put(ARGV[a], version, ends, keep, gone, ARGV[a + 4])
		replies[#replies + 1] = whole(version)
		replies[#replies + 1] = whole(ends)
		replies[#replies + 1] = whole(keep)
		newest = version
		version = version + 1
	end
	wake()
elseif asked == 'merge' then
	local full = room((#ARGV - 3) / 6)
	if full then
		return full
	end
	for a = 4, #ARGV, 6 do
		local version, keep = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 3])
		local kept = read(ARGV[a]) or 0
		if kept < version and keep > now then
			put(ARGV[a], version, tonumber(ARGV[a + 2]), keep, ARGV[a + 4], ARGV[a + 5])
		end
	end
	-- A host that merges has found that something is wrong: count anew.
	redis.call('DEL', KEYS[2], KEYS[3])
	sum = 0
	for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
		local version, _, keep = read(id)
		if version then
			redis.call('ZADD', KEYS[2], whole(version), id)
			redis.call('ZADD', KEYS[3], whole(keep), id)
			sum = (sum + version) % MODULO
			newest = math.max(newest, version)
		end
	end
	newest = math.max(now, newest + 1)
	wake()
end

redis.call('HSET', KEYS[6], 'newest', whole(newest), 'sum', whole(sum))
redis.call('HSET', KEYS[5], ARGV[1], whole(now) .. ' ' .. ARGV[2])
for i = 1, #KEYS do
	redis.call('PEXPIRE', KEYS[i], whole(REMEMBERED / 1000))
end

if asked == 'pull' then
	local most = tonumber(ARGV[5])
	local ids = redis.call('ZRANGE', KEYS[2], '(' .. ARGV[4], '+inf', 'BYSCORE', 'LIMIT', 0, most + 1)
	replies[2], replies[3], replies[4] = whole(newest), redis.call('HLEN', KEYS[1]), whole(sum)
	replies[5] = #ids > most and 1 or 0
	for i = 1, math.min(most, #ids) do
		local version, ends, keep, gone, text = read(ids[i])
		if version then
			for _, word in ipairs({ ids[i], whole(version), whole(ends), whole(keep), gone, text }) do
				replies[#replies + 1] = word
			end
		else
			redis.call('ZREM', KEYS[2], ids[i])
		end
	end
elseif asked == 'hosts' then
	replies[2] = whole(newest)
	local all = redis.call('HGETALL', KEYS[5])
	for i = 1, #all, 2 do
		local seen = tonumber(string.match(all[i + 1], '^(%d+) ') or '')
		if not seen or seen + DAY < now then
			redis.call('HDEL', KEYS[5], all[i])
		elseif all[i] ~= ARGV[1] or ARGV[2] ~= '' then
			replies[#replies + 1] = all[i]
			replies[#replies + 1] = all[i + 1]
		end
	end
end
return replies
