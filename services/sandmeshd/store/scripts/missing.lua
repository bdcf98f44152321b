-- Answers those of the ids that have no record.
local answer = {}
for _, id in ipairs(args.ids) do
  if redis.call('EXISTS', record(id)) == 0 then answer[#answer + 1] = id end
end
return answer
