-- Counts the usage up to now of a page of `kind`, the sandboxes that are held (`metered`) or the others that cost something
-- (`unheld`), or of `ids`. Returns {where the next page begins}: 0 where this was the last. One that is seen twice is counted once.
for _, id in ipairs(args.ids) do meter(id) end
if #args.ids > 0 then return {'0'} end
local page, collected = redis.call('SSCAN', key(args.kind), args.cursor, 'COUNT', args.count), {}
for _, id in ipairs(page[2]) do meter(id, nil, nil, collected) end
for name, amount in pairs(collected) do add_to_sums(name, amount) end
return {page[1]}
