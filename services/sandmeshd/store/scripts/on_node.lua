-- Returns {where the next page begins, id, state, id, state, ...} of a page of what should be on a node: 0 after the last one.
local page = redis.call('SSCAN', key('node', args.node), args.cursor, 'COUNT', args.count)
local answer = {page[1]}
for _, id in ipairs(page[2]) do
  answer[#answer + 1] = id
  answer[#answer + 1] = field(id, 'state') or ''
end
return answer
