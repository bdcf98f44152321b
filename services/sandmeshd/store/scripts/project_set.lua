-- Assigns a user to a project. Sandboxes that the user has count where they did. Returns {1}.
if args.project == 'default' then
  redis.call('HDEL', key('projects'), args.user)
else
  redis.call('HSET', key('projects'), args.user, args.project)
end
return {1}
