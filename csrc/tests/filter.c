// SPDX-License-Identifier: GPL-2.0-only
/* Installs a filter of the target: filter supervise|trace|preload. */
#include "target/filter.c"

struct lklhost host;

/** feature_hidden - no feature is hidden */
bool feature_hidden(const char *name)
{
	return !name;
}

int main(int argc, char **argv)
{
	if (argc != 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return 1;
	host.trace = argv[1][0] == 't';
	host.shared_netns = 1;	/* the longest filters */
	return (argv[1][0] == 'p' ? filter_install_plain() :
		host.trace ? filter_install_trace() : filter_install()) < 0;
}
