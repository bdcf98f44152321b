-- Counts a snapshot no more.
drop_snapshot(args.id)
return {1}
