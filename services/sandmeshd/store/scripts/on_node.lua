-- Returns {id, state, id, state, ...} of what should be on a node.
local answer = {}
for _, id in ipairs(redis.call('SMEMBERS', key('node', args.node))) do
  answer[#answer + 1] = id
  answer[#answer + 1] = field(id, 'state') or ''
end
return answer
