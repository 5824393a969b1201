-- hosts notes that a host is alive and counts those that are. It follows
-- common.lua.
--
-- KEYS  1: the list of hosts
-- ARGV  1: this host, with its secret's fingerprint after a space
--       2: how long it counts as alive   3: 1, or 0 if it leaves
-- returns the time, then all hosts alive, this one included

if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
	redis.call('DEL', KEYS[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now))
if ARGV[3] == '1' then
	redis.call('ZADD', KEYS[1], whole(now + ARGV[2]), ARGV[1])
	redis.call('PEXPIRE', KEYS[1], whole(ARGV[2] / 1000))
else
	redis.call('ZREM', KEYS[1], ARGV[1])
end
local replies = redis.call('ZRANGE', KEYS[1], 0, -1)
table.insert(replies, 1, whole(now))
return replies
