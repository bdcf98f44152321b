-- Events after one: of a sandbox, or of the mesh where the id is empty. Returns {id, fields, id, fields, ...}.
local stream = args.id == '' and key('events') or key('events', args.id)
local from = args.after == '' and '-' or '(' .. args.after
local found = {}
if args.newest then
  found = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', args.limit)
else
  found = redis.call('XRANGE', stream, from, '+', 'COUNT', args.limit)
end
local answer = {}
for _, entry in ipairs(found) do
  answer[#answer + 1] = entry[1]
  answer[#answer + 1] = entry[2]
end
return answer
