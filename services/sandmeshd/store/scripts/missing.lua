-- Returns those of the ids that have no record on the node.
local answer = {}
for _, id in ipairs(args.ids) do
  if field(id, 'node') ~= args.node then answer[#answer + 1] = id end
end
return answer
