#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# run.sh BUILD LIB TEST...: runs and counts the tests; exits 1 on any failure.
# LKL_TEST_SLOW=n: the tests may take n times as long.
build=$1 lib=$2
shift 2
export LD_LIBRARY_PATH=$lib
pass=0 fail=0 skip=0
for t in "$@"; do
	echo "# $t"
	out=$(timeout -k 5 $((300 * ${LKL_TEST_SLOW:-1})) "$build/$t" 2>&1)
	rc=$?
	echo "$out"
	pass=$((pass + $(echo "$out" | grep -c '^ok')))
	skip=$((skip + $(echo "$out" | grep -c '^ok.*# SKIP')))
	fail=$((fail + $(echo "$out" | grep -c '^not ok')))
	if [ $rc -gt 1 ]; then
		echo "not ok - $t ended with status $rc"
		fail=$((fail + 1))
	fi
done
echo "# pass $((pass - skip)) fail $fail skip $skip"
[ $fail -eq 0 ]
