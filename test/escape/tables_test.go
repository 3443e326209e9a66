// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/test/kit"
)

// An escapeAttempt is one attempt to escape from a run. csrc/tests/escape makes it,
// TestEscape checks its outcome, and docs/explanation/security.md lists it in a table.
type escapeAttempt struct {
	name  string // as printed by `escape list`
	tries string
	// The outcomes: the common one, then exceptions, separated by semicolons. An
	// exception begins with the cases that it covers: an engine, a user, or both.
	// Alternative correct outcomes are separated by "|".
	want    string
	finding int // the finding of the security review that it belongs to; 0: none
}

// An escapeSection is a heading of docs/explanation/security.md and the attempts below it.
type escapeSection struct {
	title    string
	attempts []escapeAttempt
}

var escapeWho = []string{"root", "user", "as-user"}
var escapeEngines = []string{"supervise", "preload", "trace"}

// Common outcomes. The stack has no route to an address. The preload library does not see
// a call, or a child of its program makes the call.
const (
	noRoute = "ENETUNREACH"
	noStack = "ENETUNREACH; preload ENETDOWN"
	noKind  = "EAFNOSUPPORT"
	// A target that runs as root may access every process of the host.
	ofRoot  = "EPERM; root reached"
	fileOf  = "EACCES; root reached"
	ownRoot = "; root own"
)

var escapeSections = []escapeSection{
	{"Sockets", []escapeAttempt{
		{"inet-stream", "connect by TCP to the host's loopback and its address on a wire", noRoute, 0},
		{"inet6-stream", "the same by IPv6", noRoute, 0},
		{"inet-mptcp", "the same by MPTCP", noRoute, 0},
		{"inet-sctp", "the same by SCTP", "EPROTONOSUPPORT", 0},
		{"inet-smc", "the same by SMC over IPv4 (IPPROTO_SMC)", "EPROTONOSUPPORT", 0},
		{"inet-dgram", "send UDP datagrams there", noRoute, 0},
		{"inet6-dgram", "the same by IPv6", noRoute, 0},
		{"inet-udplite", "send them by UDP-Lite", "ENETUNREACH|EPROTONOSUPPORT", 0},
		{"inet-ping", "an ICMP echo socket", "EACCES", 0},
		{"inet-raw", "a raw IPv4 packet with its own header", noRoute, 0},
		{"inet6-raw", "a raw IPv6 packet", noRoute, 0},
		{"bare-inet-stream", "TCP by system calls that the C library does not make", noStack, 0},
		{"bare-inet-dgram", "UDP by such calls", noStack, 0},
		{"bare-inet6-stream", "TCP over IPv6 by such calls", noStack, 0},
		{"tcp-fast-open", "data in the SYN (MSG_FASTOPEN)", noRoute, 0},
		{"tcp-zero-copy", "have the kernel send the program's own pages (SO_ZEROCOPY)", "EOPNOTSUPP; preload stack|EOPNOTSUPP", 0},
		{"packet-raw", "frames to every device by a packet socket", "stack", 0},
		{"packet-dgram", "the same without a link-layer header", "stack", 0},
		{"bare-packet", "the same by bare system calls", "stack; preload ENETDOWN", 0},
		{"netlink-route", "list the host's devices", "stack", 0},
		{"netlink-sock-diag", "list the host's listening sockets", "stack", 0},
		{"netlink-generic", "a generic netlink socket", "stack", 0},
		{"netlink-netfilter", "a netfilter netlink socket", "stack", 0},
		{"netlink-xfrm", "an IPsec netlink socket", "EPROTONOSUPPORT", 0},
		{"netlink-uevent", "listen for the host's device events", "own", 0},
		{"netlink-usersock", "a netlink socket between user processes", "EPERM" + ownRoot, 0},
		{"netlink-others", "every other netlink protocol", "own", 0},
		{"vsock-stream", "a stream to the hypervisor (AF_VSOCK)", noKind, 0},
		{"vsock-dgram", "a datagram to it", noKind, 0},
		{"bluetooth", "AF_BLUETOOTH", noKind, 0},
		{"can", "AF_CAN", noKind, 0},
		{"tipc", "AF_TIPC", noKind, 0},
		{"xdp", "AF_XDP", noKind, 0},
		{"smc", "AF_SMC", noKind, 0},
		{"alg", "AF_ALG, which reaches no network", "own|EAFNOSUPPORT", 0},
		{"key", "AF_KEY", noKind, 0},
		{"pppox", "AF_PPPOX", noKind, 0},
		{"rds", "AF_RDS", noKind, 0},
		{"rxrpc", "AF_RXRPC", noKind, 0},
		{"kcm", "AF_KCM", noKind, 0},
		{"qipcrtr", "AF_QIPCRTR, the modem of a phone", noKind, 0},
		{"mctp", "AF_MCTP", noKind, 0},
		{"ieee802154", "AF_IEEE802154", noKind, 0},
		{"nfc", "AF_NFC", noKind, 0},
		{"phonet", "AF_PHONET", noKind, 0},
		{"llc", "AF_LLC", noKind, 0},
		{"appletalk", "AF_APPLETALK", noKind, 0},
		{"ipx", "AF_IPX", noKind, 0},
		{"ax25", "AF_AX25", noKind, 0},
		{"x25", "AF_X25", noKind, 0},
		{"every-family", "all families from 0 to 255 that the stack does not serve, with every type", noKind, 0},
		{"family-high-half", "AF_VSOCK with garbage in the upper half of the argument", noKind, 0},
		{"socketpair-tipc", "socketpair() of AF_TIPC", noKind, 0},
		{"socketpair-any", "socketpair() of every family but AF_UNIX", "EAFNOSUPPORT|EOPNOTSUPP|EPROTONOSUPPORT", 0},
		{"unix-abstract", "an abstract unix name of the host's", "ECONNREFUSED", 0},
		{"unix-path", "a unix socket at a path that the user may use", "reached", 0},
	}},
	{"System calls", []escapeAttempt{
		{"io-uring-setup", "io_uring_setup(), which could make sockets without a call", "ENOSYS", 0},
		{"io-uring-enter", "io_uring_enter()", "ENOSYS", 0},
		{"io-uring-register", "io_uring_register()", "ENOSYS", 0},
		{"x32-socket", "socket() by its number in the x32 table", "ENOSYS", 0},
		{"i386-socketcall", "socketcall() by int 0x80", "SIGKILL; preload SIGSYS; trace SIGSYS", 0},
		{"i386-socket", "socket() by int 0x80", "SIGKILL; preload SIGSYS; trace SIGSYS", 0},
		{"i386-vsock", "the same with AF_VSOCK", "SIGKILL; preload SIGSYS; trace SIGSYS", 0},
		{"i386-io-uring", "io_uring_setup() by int 0x80", "SIGKILL; preload SIGSYS; trace SIGSYS", 0},
		{"i386-segment", "socket() by int 0x80 in a code segment of 32 bits", "SIGKILL; preload SIGSYS; trace SIGSYS", 0},
		{"i386-ldt", "the same in a segment of the program's own (modify_ldt())", "SIGKILL; preload SIGSYS; trace SIGSYS", 0},
		{"i386-program", "socket() in a program for i386", "SIGKILL; preload SIGSYS; trace SIGSYS", 0},
		{"i386-syscall", "socket() in such a segment by syscall instead of int 0x80", "SIGKILL|SIGILL; preload SIGSYS|SIGILL; trace SIGSYS|SIGILL", 0},
		{"seccomp-listener", "a seccomp listener of the target's own", "EBUSY; preload own", 0},
		{"seccomp-allow", "a filter that allows everything, then AF_VSOCK", noKind, 0},
		{"seccomp-tsync", "the same for all threads", noKind, 0},
		{"seccomp-trace", "a filter that stops for a tracer, which changes the call", noKind + "; trace EPERM", 0},
		{"ptrace-syscall", "a tracer that changes the call without a filter", noKind + "; trace EPERM", 0},
		{"ptrace-suspend-seccomp", "a tracer that suspends the filter", "EPERM", 0},
		{"not-dumpable", "PR_SET_DUMPABLE 0, then connect", noStack, 0},
		{"daemon", "connect from a daemon without parent and session", noStack, 0},
		{"exec-without-library", "connect in a program executed without LD_PRELOAD", noStack, 0},
		{"exec-static", "connect in a static program", noStack, 0},
		{"exec-foreign", "connect in the interpreter of a program for another CPU, by binfmt_misc of a user namespace", noStack, 0},
		{"exec-set-user-id", "enter the host's network namespace in a set-user-ID program", "EPERM|EACCES", 0},
		{"exec-file-capabilities", "the same in a program with file capabilities", "EPERM|EACCES", 0},
		{"bpf-socket-filter", "load a BPF program", "EPERM; root allowed", 0},
		{"bpf-xdp", "load an XDP program", "EPERM; root allowed", 0},
		{"perf-event", "measure all processes of a CPU", "EACCES|EPERM; root allowed", 0},
		{"userfaultfd", "stall the kernel's reads of the target's memory", "EPERM; root allowed", 14},
		{"userfaultfd-user", "stall only its own reads of its memory", "allowed|EPERM", 0},
		{"request-key", "have the kernel start the host's key program, which asks its name servers", "EPERM", 0},
		{"keyring", "the user's keyring", "allowed", 0},
		{"open-by-handle", "open a file by its handle, past its folders", "EPERM; root allowed", 0},
		{"terminal-input", "type into the terminal (TIOCSTI)", "EIO", 0},
		{"core-pattern", "open /proc/sys/kernel/core_pattern for writing", "EACCES; root allowed|EROFS", 0},
		{"modprobe-path", "open /proc/sys/kernel/modprobe for writing", "EACCES; root allowed|EROFS", 0},
		{"binfmt-register", "open binfmt_misc's register file", "EACCES; root allowed|EROFS", 0},
		{"uevent-helper", "open /sys/kernel/uevent_helper for writing", "EACCES; root allowed|EROFS", 0},
		{"sysrq", "open /proc/sysrq-trigger for writing", "EACCES; root allowed|EROFS", 0},
		{"dev-mem", "open /dev/mem", "EACCES; root allowed|EPERM", 0},
		{"dev-vhost-net", "open /dev/vhost-net", "EACCES|allowed; root allowed", 0},
		{"dev-vsock", "open /dev/vsock", "EACCES|allowed; root allowed", 0},
		{"kernel-module", "load a module", "EPERM; root allowed", 0},
		{"tap", "make a tap device, which is the stack's", "own; preload EACCES|EPERM; root preload own", 0},
	}},
	{"Processes", []escapeAttempt{
		{"ptrace-outside", "trace a process of the same user outside, and have it send on its connection", ofRoot + "; root trace EPERM", 8},
		{"ptrace-lklhost", "trace lklhost", ofRoot + "; root trace EPERM", 0},
		{"ptrace-lklrun", "trace lklrun", ofRoot + "; root trace EPERM", 0},
		{"memory-outside", "write into the outside process's memory", ofRoot, 8},
		{"memory-lklhost", "write into lklhost's memory", ofRoot, 0},
		{"memory-lklrun", "write into lklrun's memory", ofRoot, 0},
		{"proc-mem-outside", "write into it by /proc/PID/mem", fileOf, 8},
		{"proc-mem-lklhost", "lklhost's /proc/PID/mem", fileOf, 0},
		{"proc-mem-lklrun", "lklrun's /proc/PID/mem", fileOf, 0},
		{"pidfd-getfd-outside", "copy the outside process's connection, and send on it", "EPERM", 8},
		{"pidfd-getfd-lklhost", "copy a descriptor of lklhost's", "EPERM", 8},
		{"pidfd-getfd-lklrun", "copy a descriptor of lklrun's", "EPERM", 8},
		{"pidfd-getfd-zygote", "copy a descriptor of a helper process of lklhost's", "EPERM; root EPERM|reached; root preload EPERM", 8},
		{"ptrace-zygote", "trace the helper that starts programs of lklctl exec, and have it connect to the host", "EPERM; root ECONNREFUSED; root trace EPERM", 0},
		{"proc-fd-outside", "see what the outside process has open", fileOf, 8},
		{"proc-fd-lklhost", "see what lklhost has open", fileOf, 0},
		{"proc-fd-lklrun", "see what lklrun has open", fileOf, 0},
		{"proc-fd-open", "open the outside process's connection below /proc/PID/fd", "EACCES; root ENXIO", 0},
		{"proc-root-outside", "the outside process's root folder", fileOf, 8},
		{"proc-root-lklhost", "lklhost's root folder", fileOf, 0},
		{"proc-root-lklrun", "lklrun's root folder", fileOf, 0},
		{"proc-environ-lklrun", "lklrun's environment", fileOf, 0},
		{"signal-outside", "signal a process of the same user outside", "allowed", 0},
		{"signal-lklhost", "signal lklhost", "allowed; as-user EPERM", 0},
		{"prlimit-lklhost", "read lklhost's limits", "allowed; as-user EPERM", 0},
	}},
	{"Namespaces and mounts", []escapeAttempt{
		{"setns-init", "enter the network namespace of process 1", "EPERM|EACCES", 0},
		{"setns-outside", "enter that of the outside process", "EPERM|EACCES", 0},
		{"setns-any-type", "the same without naming the type", "EPERM|EACCES", 0},
		{"setns-name", "enter one by its name below /run/netns", "EPERM", 0},
		{"setns-pidfd", "enter one by a pidfd", "EPERM", 0},
		{"setns-pidfd-namespace", "enter the one that a pidfd gives (PIDFD_GET_NET_NAMESPACE)", "EPERM|EACCES", 0},
		{"setns-new-user", "enter one as root of a new user namespace", "EPERM", 0},
		{"setns-bind-mount", "enter one by a bind mount of its file", "EPERM|EACCES", 0},
		{"setns-exchanged", "exchange the descriptor during setns()", "EPERM; root supervise EPERM|SIGKILL", 0},
		{"setns-exchanged-net", "exchange that of the own network namespace during setns()", "EPERM; root supervise EPERM|SIGKILL", 0},
		{"setns-lklhost", "enter the network namespace of lklhost", "EPERM|EACCES", 0},
		{"setns-maker", "enter that of lklhost's maker of packet sockets", "EPERM|EACCES; preload ENOENT", 0},
		{"setns-other-run", "enter that of another run's program", "EPERM|EACCES", 0},
		{"link-outside-pid", "move a device of the stack to the outside process, by netlink", "EOPNOTSUPP; preload ENETDOWN", 0},
		{"link-outside-fd", "move a device of the stack to a network namespace of the host, by netlink", "EOPNOTSUPP; preload ENETDOWN", 0},
		{"setns-mounts", "enter the outside process's mount namespace", "EPERM|EACCES; root allowed", 8},
		{"unshare-net", "a new network namespace, then connect", "EPERM; root ENETUNREACH; root preload ENETDOWN; root trace ENETDOWN", 0},
		{"unshare-user-net", "new user and network namespaces, then connect", noStack + "; trace ENETDOWN", 0},
		{"clone3-namespaces", "a child in new namespaces, then connect", noStack + "; trace ENETDOWN", 0},
		{"mount-proc", "mount /proc anew and look for the host's devices", "own", 0},
		{"mount-sysfs", "mount /sys anew and look for them", "EPERM" + ownRoot, 0},
		{"mount-network", "mount a network file system of the host's", "EPERM; root ENETUNREACH", 0},
		{"uncover", "unmount what covers the host's files", "EPERM|EINVAL; root allowed", 0},
		{"uncover-new-user", "unmount it as root of a new user namespace", "EINVAL", 0},
		{"view-read", "read the host's /proc/sys/net by odd names", "stack|ENOENT", 0},
		{"view-write", "write to /proc/sys/net", "stack|ENOENT|EACCES", 0},
		{"view-write-dots", "write to it by a name with dots", "ENOENT", 0},
		{"view-names", "names that lead out of the view", "ENOENT|EINVAL|ENAMETOOLONG", 0},
		{"proc-net", "the host's devices in /proc/net", "own", 0},
		{"proc-self-net", "the host's devices in /proc/self/net", "own", 0},
		{"proc-init-net", "the host's devices in /proc/1/net", "allowed", 0},
		{"sys-class-net", "the host's devices in /sys/class/net", "ENOENT", 0},
	}},
	{"Descriptors", []escapeAttempt{
		{"receive-inet", "receive a connection of the host's (SCM_RIGHTS), and write", "withheld; preload reached|withheld", 8},
		{"receive-inet-recvmmsg", "the same by recvmmsg()", "withheld; preload reached|withheld", 8},
		{"receive-inet-bare", "receive a connection of the host's by a bare system call", "withheld; preload reached", 8},
		{"receive-inet6-dgram", "receive a UDP socket of the host's, and write", "withheld; preload reached|withheld", 8},
		{"receive-netlink", "receive a netlink socket of the host's, and list its devices", "withheld; preload reached|withheld", 8},
		{"receive-vsock", "receive a socket of AF_VSOCK", "withheld; preload reached|withheld", 8},
		{"receive-packet", "receive a packet socket of the host's", "withheld; preload reached|withheld", 8},
		{"receive-namespace", "receive a network namespace, and enter it", "EPERM|withheld", 0},
		{"receive-unix-ioctl", "receive a unix socket made on the host, and ask it for devices", "stack", 0},
		{"receive-unix-bare-ioctl", "ask a received unix socket for devices by a bare system call", "stack; preload ENETDOWN", 0},
		{"send-socket", "send a socket out: is it one of the host's network?", "own; preload EOPNOTSUPP", 0},
		{"inherit-link", "the descriptor of --if fd:N", "EBADF|withheld", 11},
		{"inherit-inet", "a connection that lklrun has inherited", "EBADF|withheld", 0},
		{"inherit-unix-ioctl", "an inherited unix socket: ask it for the host's devices", "stack|EBADF|withheld", 0},
	}},
	{"Services and control", []escapeAttempt{
		{"nscd", "the host's nscd, restarted during the run", "ENOENT|ECONNREFUSED", 4},
		{"resolved", "systemd-resolved", "ENOENT|ECONNREFUSED", 4},
		{"resolved-late", "a socket that appears in its folder during the run", "ENOENT|ECONNREFUSED", 4},
		{"avahi", "avahi", "ENOENT|ECONNREFUSED", 4},
		{"userdb", "systemd-userdbd", "ENOENT|ECONNREFUSED", 4},
		{"d-bus", "the system's D-Bus", "reached", 0},
		{"nscd-outside", "nscd by the outside process's root folder", "EACCES|ENOENT; root reached", 8},
		{"getaddrinfo", "look up a name with the C library", "unresolved", 4},
		{"name-server", "ask the host's name server by its address", noStack, 0},
		{"control-socket", "the run's own control socket", "ENOENT|EACCES|closed", 6},
		{"control-socket-other", "the control socket of another run of the same user", "ENOENT|EACCES|closed", 6},
		{"run-directory", "look into the run directory", "ENOENT|EACCES", 6},
		{"run-directory-write", "make a file in it", "ENOENT|EACCES|EROFS", 6},
		{"run-directory-other", "look into that of another run", "ENOENT|EACCES", 6},
		{"run-state", "read state, journal or log", "ENOENT|EACCES", 6},
		{"run-state-other", "read those of another run", "ENOENT|EACCES", 6},
		{"lklctl-link-add", "give the run an interface to the host's network (lklctl link add user)", "refused", 6},
		{"lklctl-exec-other", "run a program on another run's stack (lklctl exec)", "refused", 6},
		{"lklrun-nested", "a run of its own, with the gateway to the host's network", "refused", 0},
		{"lklrun-cleanup", "lklrun cleanup, which changes nothing on the host", "own", 0},
	}},
}

// escapeOtherUser are the attempts that another user of the host makes against the run
// of an ordinary user. want is the outcome of this one case.
var escapeOtherUser = escapeSection{"Another user", []escapeAttempt{
	{"control-socket", "the control socket of somebody else's run", "EACCES", 5},
	{"run-directory", "look into the run directory", "EACCES", 0},
	{"run-directory-write", "make a file in it", "EACCES", 0},
	{"run-state", "read state, journal or log", "EACCES", 0},
	{"ptrace-lklhost", "trace lklhost", "EPERM", 0},
	{"ptrace-lklrun", "trace lklrun", "EPERM", 0},
	{"memory-lklhost", "write into lklhost's memory", "EPERM", 0},
	{"proc-mem-lklhost", "lklhost's /proc/PID/mem", "EACCES", 0},
	{"pidfd-getfd-lklhost", "copy a descriptor of lklhost's", "EPERM", 0},
	{"pidfd-getfd-zygote", "copy a descriptor of the zygote's", "EPERM", 0},
	{"proc-fd-lklhost", "see what lklhost has open", "EACCES", 0},
	{"proc-root-lklhost", "lklhost's root folder", "EACCES", 0},
	{"proc-environ-lklrun", "lklrun's environment", "EACCES", 0},
	{"signal-lklhost", "signal lklhost", "EPERM", 0},
	{"prlimit-lklhost", "read lklhost's limits", "EPERM", 0},
}}

// escapeHostNet are the attempts against a run with --host-net, which only supervise
// supports.
var escapeHostNet = escapeSection{"Chosen destinations", []escapeAttempt{
	{"hostnet-unspecified", "send to an address without a family", "tried", 3},
	{"hostnet-second-message", "the second message of sendmmsg() to another port", "tried", 3},
	{"hostnet-race-sendto", "exchange the address during sendto()", "tried", 3},
	{"hostnet-race-udp", "exchange the address during connect() of a UDP socket", "tried", 3},
	{"hostnet-race-tcp", "exchange the address during connect() of a TCP socket", "tried", 3},
}}

// selects reports whether all words of an exception match this case.
func selects(words []string, who, engine string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return w != who && w != engine })
}

// expected returns the correct outcomes of a case. The matching exception with the most
// words decides.
func (a escapeAttempt) expected(who, engine string) []string {
	best, outcome := -1, ""
	for _, part := range strings.Split(a.want, ";") {
		words := strings.Fields(part)
		last := len(words) - 1
		if selects(words[:last], who, engine) && last > best {
			best, outcome = last, words[last]
		}
	}
	return strings.Split(outcome, "|")
}

// cell returns the table cell for an engine: one outcome, or one for each user.
func (a escapeAttempt) cell(engine string) string {
	word := func(who string) string { return strings.Join(a.expected(who, engine), " or ") }
	if word("root") == word("user") && word("user") == word("as-user") {
		return word("user")
	}
	var parts []string
	for _, who := range []string{"user", "as-user", "root"} {
		if who == "as-user" && word("as-user") == word("user") {
			continue
		}
		name := map[string]string{"user": "", "as-user": "`--user`: ", "root": "root: "}[who]
		parts = append(parts, name+word(who))
	}
	return strings.Join(parts, "; ")
}

// tried describes the attempt, with the finding that it belongs to.
func (a escapeAttempt) tried() string {
	if a.finding == 0 {
		return a.tries
	}
	return fmt.Sprintf("%s ([finding %d](#findings))", a.tries, a.finding)
}

// rows writes the rows of a table. Attempts with the same outcomes share a row, as long as
// it has no more words than the prose lint permits in a sentence.
func (s escapeSection) rows(b *strings.Builder, outcomes func(escapeAttempt) string) {
	var rows [][3]string
	at := map[string]int{} // the last row of each outcome
	for _, a := range s.attempts {
		name, o := "`"+a.name+"`", outcomes(a)
		i, ok := at[o]
		if ok && len(strings.Fields(rows[i][1]+" "+a.tried())) <= 33 {
			rows[i] = [3]string{rows[i][0] + ", " + name, rows[i][1] + "; " + a.tried(), o}
			continue
		}
		at[o] = len(rows)
		rows = append(rows, [3]string{name, a.tried(), o})
	}
	for _, r := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(r[:], " | "))
	}
	b.WriteString("\n")
}

// escapeTables returns the generated part of docs/explanation/security.md.
func escapeTables() string {
	var b strings.Builder
	for _, s := range escapeSections {
		fmt.Fprintf(&b, "### %s\n\n| attempts | what they try | supervise | preload | trace |\n|---|---|---|---|---|\n", s.title)
		s.rows(&b, func(a escapeAttempt) string {
			return strings.Join([]string{a.cell("supervise"), a.cell("preload"), a.cell("trace")}, " | ")
		})
	}
	for _, s := range []escapeSection{escapeHostNet, escapeOtherUser} {
		fmt.Fprintf(&b, "### %s\n\n| attempts | what they try | outcome |\n|---|---|---|\n", s.title)
		s.rows(&b, func(a escapeAttempt) string { return a.want })
	}
	return strings.TrimSuffix(b.String(), "\n")
}

var update = flag.Bool("update", false, "write the tables of docs/explanation/security.md anew")

// TestEscapeTables checks that docs/explanation/security.md has the tables that TestEscape uses;
// -update writes them.
func TestEscapeTables(t *testing.T) {
	const begin, end = "<!-- escape tables: begin -->\n", "<!-- escape tables: end -->\n"
	path := filepath.Join(kit.Root(), "docs", "explanation", "security.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	got, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the tables", path)
	}
	want := "\n" + escapeTables() + "\n"
	if *update {
		kit.WriteFile(t, path, head+begin+want+end+tail)
		got = want
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("%s is not current; go test ./test/escape -run TestEscapeTables -update writes it\n%s", path, diff)
	}
	attempts := len(escapeOtherUser.attempts)
	for _, s := range escapeSections {
		attempts += len(s.attempts)
	}
	if attempts < 60 {
		t.Errorf("%d attempts", attempts)
	}
}

// TestSecurityNames checks that each test and file named in docs/explanation/security.md
// exists.
func TestSecurityNames(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(kit.Root(), "docs", "explanation", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	err = filepath.WalkDir(kit.Root(), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"build", "bin", ".git", "csrc", "third_party"}, d.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllStringSubmatch(string(source), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := testName.FindAllStringSubmatch(string(text), -1)
	if len(names) < 17 {
		t.Errorf("%d names", len(names))
	}
	for _, m := range fileName.FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join(kit.Root(), m[1])); err != nil {
			t.Error(err)
		}
	}
	for _, m := range names {
		if !there[m[1]] {
			t.Errorf("there is no %s", m[1])
		}
	}
}

var (
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	testName = regexp.MustCompile("`(Test\\w+)`")
	fileName = regexp.MustCompile("`((?:csrc|internal|kube|test)/[\\w./-]+)`")
)
