-- Marks a sandbox for deletion. Returns {released} also where it is deleted or stopping already, and {lost, record}
-- where the token is not the one in force. A record whose token is damaged is released by any.
local token = field(args.id, 'token')
if not token then token = redis.call('GET', key('tomb', args.id)) or args.token end
local readable = #token <= 18 and token:match('^%d+$')
if token ~= args.token and readable then return {'lost', whole(args.id)} end
stop(args.id, args.reason)
return {'released'}
