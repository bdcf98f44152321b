-- The sandboxes that were paused after a moment. Returns {moment, id, id, ...}: the moment to name the next time.
local found = redis.call('ZRANGEBYSCORE', key('paused'), '(' .. text(args.after_us), '+inf', 'WITHSCORES')
local answer = {text(args.after_us)}
for index = 1, #found, 2 do
  answer[#answer + 1] = found[index]
  answer[1] = found[index + 1]
end
return answer
