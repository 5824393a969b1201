-- debit takes what a host has admitted of up to 64 bucket keys off the fleet's
-- count, and answers what is left, which share of it is lent to the host, and
-- how long to refuse. Debt may grow beyond the burst: it is repaid before
-- anyone is admitted again. It follows common.lua, and credit.Authority is its
-- model.
--
-- KEYS  1: the number of the host's last batch for this shard
--       then for each call: the bucket, its leases
-- ARGV  1: the host   2: the number of this batch, from 1
--       then for each call eight: cost of a request (0: a quota), most at once,
--       the period's end, the end of the one after, spent, presses (0 or 1),
--       the share lent now, requests a second
-- returns the time, then for each call three: left, share, wait
--
-- A batch that has come before is answered and not debited again.

local host, seq = ARGV[1], tonumber(ARGV[2])
local again = (tonumber(redis.call('GET', KEYS[1]) or '') or 0) >= seq
if not again then
	redis.call('SET', KEYS[1], whole(seq), 'PX', 3600000)
end

local replies = { whole(now) }
for call = 1, (#KEYS - 1) / 2 do
	local key, leases = KEYS[2 * call], KEYS[2 * call + 1]
	local a = 2 + 8 * (call - 1)
	local cost, most, stop = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
	local spent, presses = tonumber(ARGV[a + 5]), ARGV[a + 6] == '1'
	local left, share, wait = 0, 0, 0
	if again then
		spent = 0
	end

	if cost > 0 then
		local deep = round(most * cost)
		local debt = round(debt_of(key, cost, deep) + spent * cost)
		keep_debt(key, debt, cost)
		if deep - debt >= round(cost) then
			left = math.floor((deep - debt + 0.5) / cost)
		else
			wait = math.ceil(cost - (deep - debt))
		end
	else
		local count, ends = period_of(key, stop, tonumber(ARGV[a + 4]))
		if stop == ends or stop > now then
			count = count + spent
		end
		keep_period(key, count, ends)
		left = math.max(0, most - count)
		if left == 0 then
			wait = math.max(0, ends - now)
		end
	end

	if presses then
		share = lend(leases, host, tonumber(ARGV[a + 7]), tonumber(ARGV[a + 8]))
	end
	replies[#replies + 1] = whole(left)
	replies[#replies + 1] = string.format('%.17g', share)
	replies[#replies + 1] = whole(wait)
end
return replies
