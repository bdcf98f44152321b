-- Takes sandboxes that are to be deleted, for a while: another worker gets them when this one did not finish.
-- Answers {id, node, id, node, ...}.
local due = redis.call('ZRANGEBYSCORE', key('stopping'), '-inf', text(now), 'LIMIT', 0, args.limit)
local answer = {}
for _, id in ipairs(due) do
  redis.call('ZADD', key('stopping'), text(now + args.hold_us), id)
  answer[#answer + 1] = id
  answer[#answer + 1] = field(id, 'node') or ''
end
return answer
