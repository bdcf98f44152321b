-- Counts the usage up to now of a page of the sandboxes that are held (`metered`) or cost something (`priced`), or of `ids`.
-- Returns {where the next page begins}: 0 where this was the last. One that is seen twice is counted once.
for _, id in ipairs(args.ids) do
  meter(id)
  meter_cost(id)
end
if #args.ids > 0 then return {'0'} end
local priced, collected = args.kind == 'priced', {}
local page = redis.call(priced and 'HSCAN' or 'SSCAN', key(args.kind), args.cursor, 'COUNT', args.count)
for index = 1, #page[2], priced and 2 or 1 do
  if priced then meter_cost(page[2][index], collected) else meter(page[2][index], nil, collected) end
end
for name, amount in pairs(collected) do add_to_sums(name, amount) end
return {page[1]}
