-- The entries of the audit before one, or the newest where that is empty, the newest first. Returns {id, entry, ...}.
local answer = {}
local newest = args.before == '' and '+' or '(' .. args.before
for _, entry in ipairs(redis.call('XREVRANGE', key('audit'), newest, '-', 'COUNT', args.count)) do
  answer[#answer + 1] = entry[1]
  answer[#answer + 1] = entry[2][2]
end
return answer
