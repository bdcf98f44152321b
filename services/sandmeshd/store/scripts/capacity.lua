-- Answers {used, next deadline or 0, template, unused, template, unused, ...}.
local soonest = redis.call('ZRANGE', key('leases'), 0, 0, 'WITHSCORES')
local answer = {redis.call('SCARD', key('used')), soonest[2] or '0'}
local pools = redis.call('HGETALL', key('pools'))
for index = 1, #pools, 2 do
  answer[#answer + 1] = pools[index + 1]
  answer[#answer + 1] = redis.call('ZCARD', key('pool', pools[index]))
end
return answer
