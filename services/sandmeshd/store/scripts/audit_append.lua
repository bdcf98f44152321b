-- Appends entries of the audit, the further arguments, and drops the oldest beyond the limit. Returns {1}.
for index = 2, #ARGV do redis.call('XADD', key('audit'), 'MAXLEN', '~', args.limit, '*', 'entry', ARGV[index]) end
return {1}
