-- A user's sessions by key, after one and up to a limit. Returns {session, name, created_us, ...}.
local from = args.after == '' and '-' or '(' .. args.after
local answer = {}
for _, session in ipairs(redis.call('ZRANGEBYLEX', key('user', args.user_key), from, '+')) do
  if #answer >= args.limit * 3 then break end
  local found = redis.call('HMGET', key('user_session', session), 'name', 'created_us')
  if found[1] then
    for _, value in ipairs({session, found[1], found[2]}) do answer[#answer + 1] = value end
  else
    redis.call('ZREM', key('user', args.user_key), session)
  end
end
return answer
