-- Reads a token's record, and records its use by the minute on request; `gone` is its project where that does not exist any more.
-- Returns {now_us, field, value, ...} or {}.
local token = key('access', args.id)
if redis.call('EXISTS', token) == 0 then return {} end
if args.note_use then redis.call('HSET', token, 'used_us', text(now - now % 60000000)) end
local answer = {text(now), unpack(redis.call('HGETALL', token))}
local project = redis.call('HGET', token, 'project')
if project and not project_exists(project) then
  answer[#answer + 1] = 'gone'
  answer[#answer + 1] = project
end
return answer
