-- Answers {1} where a deleted sandbox is still remembered, else {0}.
return {redis.call('EXISTS', key('tomb', args.id))}
