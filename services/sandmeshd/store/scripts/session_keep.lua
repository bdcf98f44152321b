-- Reads a session's record and extends its retention on request. Returns {user, name, created_us} or {}.
local session = key('user_session', args.session)
local found = redis.call('HMGET', session, 'user', 'name', 'created_us')
if not found[1] then return {} end
if args.keep_seconds > 0 then
  redis.call('EXPIRE', session, args.keep_seconds)
  redis.call('EXPIRE', key('user', args.user_key), args.keep_seconds)
end
return found
