-- Writes, so that a store that cannot is detected. Returns {the time of its clock, allocator, seconds, ...}: those that have
-- been silent for `silent_us`, and for how long, but not for as long as `forget_us`.
redis.call('SET', key('pulse'), text(now), 'EX', 60)
local answer = {text(now)}
local from, to = text(now - args.forget_us), text(now - args.silent_us)
local silent = redis.call('ZRANGEBYSCORE', key('allocators'), from, to, 'WITHSCORES', 'LIMIT', 0, 10)
for index = 1, #silent, 2 do
  answer[#answer + 1] = silent[index]
  answer[#answer + 1] = text((now - tonumber(silent[index + 1])) / 1000000)
end
return answer
