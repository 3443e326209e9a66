// SPDX-License-Identifier: GPL-2.0-only
/*
 * Compares the structs of ctl_proto.h with golden bytes that also test the Go
 * side: internal/stack/ctlproto/testdata/golden.txt. The values are those of
 * internal/stack/ctlproto/golden_test.go.
 */
#include <stdlib.h>
#include <string.h>

#include "shared/ctl_proto.h"
#include "tap.h"

static FILE *golden;

/** find - find the bytes of message @name in the file; returns their number, or -1 */
static int find(const char *name, unsigned char *out, size_t room)
{
	char line[8192];
	size_t len = strlen(name);

	rewind(golden);
	while (fgets(line, sizeof(line), golden)) {
		const char *p = line + len + 1;
		size_t n = 0;

		if (strncmp(line, name, len) || line[len] != ' ')
			continue;
		for (; n < room && p[0] > ' ' && p[1] > ' '; p += 2) {
			char hex[3] = { p[0], p[1], 0 };

			out[n++] = (unsigned char)strtoul(hex, NULL, 16);
		}
		return (int)n;
	}
	return -1;
}

/**
 * same - compare a struct, and what follows it, with the file
 * @tail: bytes after the struct
 */
static void same(const char *name, const void *body, size_t len,
		 const void *tail, size_t tail_len)
{
	unsigned char want[4096];
	int n = find(name, want, sizeof(want));

	ok(n == (int)(len + tail_len) && !memcmp(want, body, len) &&
	   (!tail_len || !memcmp(want + len, tail, tail_len)),
	   "%s: %zu bytes as in the golden file", name, len + tail_len);
}

/** requests - bodies of requests */
static void requests(void)
{
	struct ctl_hello_req hello = { CTL_MAGIC, 1 };
	struct ctl_link_add add = {
		CTL_LINK_TAP, CTL_LINKF_VNET_HDR | CTL_LINKF_OFFLOAD,
		{ 2, 0, 0, 0xaa, 0xbb, 0xcc }, 1500,
	};
	struct ctl_link_del del = { 3 };
	struct ctl_link_join join = { 4 };
	struct ctl_boot boot = { 64 << 20, 10, 0 };
	struct ctl_go go = { CTL_GOF_MPTCP, 50, 25, 0 };
	struct {
		struct ctl_syscall call;
		struct ctl_buf buf[4];
	} call = {
		{ 46, 4, 250, 1, { 7, 0, 64, 0, 0, UINT64_MAX } },
		{
			{ 1, CTL_BUF_INOUT, 0, 16 },
			{ 0, CTL_BUF_IN | CTL_BUF_IN_BUF, 8, 3 },
			{ 4, CTL_BUF_OUT, 0, 32 },
			{ 0, CTL_BUF_USED, 8, 0 },
		},
	};
	struct ctl_cancel cancel = { 77 };
	struct ctl_events events = { CTL_EV_EXIT | CTL_EV_PANIC | CTL_EV_WARN };
	struct ctl_stop stop = { 15, 2000 };
	struct ctl_serve serve = { CTL_SERVE_STAY };
	struct ctl_exec exec = { 3, 2, 022, 21 };
	struct ctl_exec_signal sig = { 77, 15, CTL_EXECF_GROUP, 0 };
	struct ctl_ask ask = { 7, CTL_ASKF_FD };
	struct ctl_answer answer = { 7, -2 };

	same("hello_req", &hello, sizeof(hello), NULL, 0);
	same("link_add", &add, sizeof(add), NULL, 0);
	same("link_del", &del, sizeof(del), NULL, 0);
	same("link_join", &join, sizeof(join), NULL, 0);
	same("boot", &boot, sizeof(boot), "loglevel=4", 10);
	same("go", &go, sizeof(go), "/run/lklrun/a/resolv.conf", 25);
	same("syscall", &call, sizeof(call), "0123456789abcdefxyz", 19);
	same("cancel", &cancel, sizeof(cancel), NULL, 0);
	same("events", &events, sizeof(events), NULL, 0);
	same("stop", &stop, sizeof(stop), NULL, 0);
	same("serve", &serve, sizeof(serve), NULL, 0);
	same("exec", &exec, sizeof(exec), "/srv\0ip\0addr\0\0A=b\0C=", 21);
	same("exec_signal", &sig, sizeof(sig), NULL, 0);
	same("ask", &ask, sizeof(ask), "{\"verb\":\"lease\"}", 16);
	same("answer", &answer, sizeof(answer), "{\"a\":1}", 7);
}

/** replies - bodies of replies and events */
static void replies(void)
{
	struct ctl_hello_rep hello = { 1, CTL_STATE_RUNNING, 1001, 1002,
				       CTL_ABI_NATIVE, 20, 0x1122334455667788 };
	struct ctl_link_rep link = { 3, 5 };
	uint32_t pid = 1002;
	struct ctl_syscall_rep bad = { -11 }, good = { 5 };
	struct ctl_event event = { CTL_EV_EXIT, 1002, 0x0102030405060708, -2 };
	struct ctl_exec_rep exec = { 0x7f00, CTL_EXEC_COMMAND, 2, 0 };
	struct ctl_owner owners[2] = {
		{ 11, 0x100000002, 1002, 4, 9, 0, "curl" },
		{ 12, 13, 14, 15, -1, 0, "fifteen-letters" },
	};
	struct ctl_hdr frame = { 18, CTL_GO | CTL_REPLY, 0, 9, -1 };

	same("hello_rep", &hello, sizeof(hello),
	     "mptcp\0" "6.12.38\0" "arm64", 20);
	same("link_rep", &link, sizeof(link), NULL, 0);
	same("go_rep", &pid, sizeof(pid), NULL, 0);
	same("syscall_rep_error", &bad, sizeof(bad), NULL, 0);
	same("syscall_rep", &good, sizeof(good), "hello", 5);
	same("event", &event, sizeof(event), "ended", 5);
	same("exec_rep", &exec, sizeof(exec), NULL, 0);
	same("owners", owners, sizeof(owners), NULL, 0);
	same("frame", &frame, sizeof(frame), "\1\2", 2);
}

/** main - the file is the only argument */
int main(int argc, char **argv)
{
	golden = argc == 2 ? fopen(argv[1], "r") : NULL;
	if (!golden) {
		printf("Bail out! usage: test_ctl_proto GOLDEN\n");
		return 2;
	}
	requests();
	replies();
	fclose(golden);
	return tap_end();
}
