-- Stops the sandboxes of a page of the mesh's, by id after one, and drops its pools. Returns {how many, the last id of the page}:
-- an empty one where it was the last page.
redis.call('DEL', key('pools'))
local count, page = 0, redis.call('ZRANGEBYLEX', key('ids'), args.after == '' and '-' or '(' .. args.after, '+', 'LIMIT', 0, args.limit)
for _, id in ipairs(page) do
  if field(id, 'state') ~= 'STOPPING' then
    stop(id, args.reason)
    count = count + 1
  end
end
return {count, page[#page] or ''}
