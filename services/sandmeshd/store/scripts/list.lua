-- Records by id, after one and at most so many, of the whole mesh or of a session. Answers {record, record, ...}.
local ids = {}
if args.session ~= '' then
  for _, id in ipairs(redis.call('HVALS', key('session', args.session))) do
    if id > args.after then ids[#ids + 1] = id end
  end
  table.sort(ids)
else
  local from = args.after == '' and '-' or '(' .. args.after
  ids = redis.call('ZRANGEBYLEX', key('ids'), from, '+', 'LIMIT', 0, args.limit)
end
local answer = {}
for index = 1, math.min(#ids, args.limit) do
  answer[#answer + 1] = whole(ids[index])
end
return answer
