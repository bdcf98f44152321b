-- Records by id, after one and up to a limit: of the whole mesh, of a session, or with all of some labels. Returns
-- {record, record, ...}.
local ids = {}
if args.session ~= '' then
  ids = redis.call('HVALS', key('session', args.session))
elseif #args.labels > 0 then
  local names = {}
  for index, label in ipairs(args.labels) do names[index] = key('label', label) end
  ids = redis.call('SINTER', unpack(names))
else
  local from = args.after == '' and '-' or '(' .. args.after
  ids = redis.call('ZRANGEBYLEX', key('ids'), from, '+', 'LIMIT', 0, args.limit)
end
table.sort(ids)
local answer = {}
for _, id in ipairs(ids) do
  if #answer >= args.limit then break end
  if id > args.after then answer[#answer + 1] = whole(id) end
end
return answer
