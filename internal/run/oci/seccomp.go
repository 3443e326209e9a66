// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// The filter of a container sends the same calls to lklhost as the filter of a run
// (csrc/target/filter.c). libseccomp does not define which of two rules wins if both
// match a call. The rules of one call are therefore disjoint: for a call that is
// notified with some arguments only, other rules allow exactly the rest.

const (
	actAllow  = "SCMP_ACT_ALLOW"
	actErrno  = "SCMP_ACT_ERRNO"
	actNotify = "SCMP_ACT_NOTIFY"

	opMasked   = "SCMP_CMP_MASKED_EQ"
	opEqual    = "SCMP_CMP_EQ"
	opNotEqual = "SCMP_CMP_NE"

	// Without this flag, a signal that arrives during a call loses the answer.
	flagKillable = "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"

	low32 = 1<<32 - 1 // the kernel ignores the upper half of an int
)

// architectures are the names of the only architecture that a stack serves. The
// filter kills programs of other ones.
var architectures = map[string]string{"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}

// notified are the calls that lklhost gets with any arguments.
var notified = []string{
	"connect", "bind", "listen", "accept", "accept4", "getsockname", "getpeername",
	"getsockopt", "setsockopt", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg", "setns",
	"syslog", "pidfd_getfd",
}

// absent are the calls that fail as on a kernel without them, because they create
// sockets without a system call.
var absent = []string{"io_uring_setup", "io_uring_enter", "io_uring_register"}

// An arg is a condition on an argument of a call. With opMasked, Value is the mask
// and ValueTwo the value.
type arg struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo,omitempty"`
	Op       string `json:"op"`
}

type rule struct {
	Names    []string `json:"names"`
	Action   string   `json:"action"`
	ErrnoRet *uint    `json:"errnoRet,omitempty"`
	Args     []arg    `json:"args,omitempty"`
}

// masked is the set of arguments a for which a&mask == value.
type masked struct{ mask, value uint64 }

// complement returns disjoint sets that contain exactly the values outside of all of
// the given sets.
func complement(of ...masked) []masked {
	rest := []masked{{}}
	for _, m := range of {
		var next []masked
		for _, r := range rest {
			next = append(next, r.without(m)...)
		}
		rest = next
	}
	return rest
}

// without splits m minus o into disjoint sets, one for each bit that only o requires:
// the bits before it are as in o, and this bit is not.
func (m masked) without(o masked) (parts []masked) {
	if (m.value^o.value)&m.mask&o.mask != 0 {
		return []masked{m} // they have nothing in common
	}
	at := m
	for bits := o.mask &^ m.mask; bits != 0; bits &= bits - 1 {
		bit := bits & -bits
		parts = append(parts, masked{at.mask | bit, at.value | ^o.value&bit})
		at = masked{at.mask | bit, at.value | o.value&bit}
	}
	return parts
}

func (m masked) arg(index uint) arg {
	return arg{Index: index, Value: m.mask, ValueTwo: m.value, Op: opMasked}
}

// among returns rules for a call that depends on one argument: action for the values
// of the sets, and other for the rest.
func among(name string, index uint, sets []masked, action, other rule) (rules []rule) {
	for _, m := range sets {
		r := action
		r.Names, r.Args = []string{name}, []arg{m.arg(index)}
		rules = append(rules, r)
	}
	for _, m := range complement(sets...) {
		r := other
		r.Names, r.Args = []string{name}, []arg{m.arg(index)}
		rules = append(rules, r)
	}
	return rules
}

// addressed returns rules for sendto and recvfrom. lklhost gets them with an address,
// their fifth argument, and with one of the flags.
func addressed(name string, flags ...uint64) []rule {
	allow := rule{Names: []string{name}, Action: actAllow, Args: []arg{{Index: 4, Op: opEqual}}}
	rules := []rule{{Names: []string{name}, Action: actNotify, Args: []arg{{Index: 4, Op: opNotEqual}}}}
	seen := uint64(0)
	for _, f := range flags {
		// The flags before this one are not set.
		rules = append(rules, rule{Names: []string{name}, Action: actNotify, Args: []arg{{Index: 4, Op: opEqual}, masked{seen | f, f}.arg(3)}})
		seen |= f
	}
	allow.Args = append(allow.Args, masked{seen, 0}.arg(3))
	return append(rules, allow)
}

func errno(e unix.Errno) rule {
	n := uint(e)
	return rule{Action: actErrno, ErrnoRet: &n}
}

// rules returns the rules for all calls that concern the network, by call.
func rules() map[string][]rule {
	notify, allow := rule{Action: actNotify}, rule{Action: actAllow}
	all := map[string][]rule{}
	for _, name := range notified {
		all[name] = []rule{{Names: []string{name}, Action: actNotify}}
	}
	for _, name := range absent {
		r := errno(unix.ENOSYS)
		r.Names = []string{name}
		all[name] = []rule{r}
	}
	all["socket"] = among("socket", 0, []masked{{low32, unix.AF_UNIX}, {low32, unix.AF_ALG}}, allow, notify)
	all["socketpair"] = among("socketpair", 0, []masked{{low32, unix.AF_TIPC}}, errno(unix.EAFNOSUPPORT), allow)
	all["sendto"] = addressed("sendto", unix.MSG_FASTOPEN)
	all["recvfrom"] = addressed("recvfrom", unix.MSG_ERRQUEUE, unix.MSG_TRUNC)
	// Requests of sockets and of wireless devices: 0x89.. and 0x8b...
	sockets := []masked{{low32 &^ 0x2ff, 0x8900}, {low32, unix.SIOCOUTQ}}
	inject := masked{low32, unix.TIOCSTI}
	refuse := errno(unix.EIO)
	refuse.Names, refuse.Args = []string{"ioctl"}, []arg{inject.arg(1)}
	all["ioctl"] = append(all["ioctl"], refuse)
	for _, m := range sockets {
		all["ioctl"] = append(all["ioctl"], rule{Names: []string{"ioctl"}, Action: actNotify, Args: []arg{m.arg(1)}})
	}
	for _, m := range complement(append(sockets, inject)...) {
		all["ioctl"] = append(all["ioctl"], rule{Names: []string{"ioctl"}, Action: actAllow, Args: []arg{m.arg(1)}})
	}
	key := errno(unix.EPERM)
	key.Names, key.Args = []string{"request_key"}, []arg{{Index: 2, Op: opNotEqual}}
	all["request_key"] = []rule{key, {Names: key.Names, Action: actAllow, Args: []arg{{Index: 2, Op: opEqual}}}}
	return all
}

// supervise changes the container's seccomp profile, so that its processes get their
// sockets from the lklhost at the socket path. Calls that the profile denies remain
// denied.
func (s *spec) supervise(path string) error {
	linux := section(s.all, "linux")
	if linux == nil {
		return fmt.Errorf("%s: has no section linux", s.path)
	}
	profile, err := supervised(section(linux, "seccomp"), path)
	if err != nil {
		return fmt.Errorf("%s: linux.seccomp: %w", s.path, err)
	}
	linux["seccomp"] = profile
	return nil
}

// supervised returns such a profile. profile may be nil.
func supervised(profile map[string]any, path string) (map[string]any, error) {
	arch, ok := architectures[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("containers on a stack require x86-64 or arm64, not %s", runtime.GOARCH)
	}
	if profile == nil {
		profile = map[string]any{"defaultAction": actAllow}
	}
	if p, _ := profile["listenerPath"].(string); p != "" {
		return nil, fmt.Errorf("the container's seccomp profile has a listener of its own (%s); a program has only one; use another profile", p)
	}
	var old []any
	if err := remarshal(profile["syscalls"], &old); err != nil {
		return nil, fmt.Errorf("syscalls: %w", err)
	}
	fallback, _ := profile["defaultAction"].(string)
	ours := rules()
	kept := replace(old, ours, fallback)
	names := make([]string, 0, len(ours))
	for name := range ours {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, r := range ours[name] {
			if r.Action != fallback {
				kept = append(kept, r)
			}
		}
	}
	profile["syscalls"], profile["architectures"] = kept, []string{arch}
	profile["listenerPath"] = path
	flags, _ := profile["flags"].([]any)
	profile["flags"] = append(flags, flagKillable)
	return profile, nil
}

// replace removes our calls from the profile's rules. It removes the calls from ours
// that the profile denies.
func replace(old []any, ours map[string][]rule, fallback string) (kept []any) {
	allowed := map[string]bool{}
	denied := map[string]bool{}
	for _, o := range old {
		r, _ := o.(map[string]any)
		args, _ := r["args"].([]any)
		for _, n := range nameList(r) {
			switch r["action"] {
			case actAllow, "SCMP_ACT_LOG":
				allowed[n] = true
			default:
				denied[n] = denied[n] || len(args) == 0
			}
		}
	}
	for name := range ours {
		open := fallback == actAllow || fallback == "SCMP_ACT_LOG"
		if !allowed[name] && (!open || denied[name]) {
			delete(ours, name)
		}
	}
	for _, o := range old {
		r, _ := o.(map[string]any)
		names := slices.DeleteFunc(nameList(r), func(n string) bool { return ours[n] != nil })
		if len(names) > 0 {
			r["names"] = names
			kept = append(kept, r)
		}
	}
	return kept
}

func nameList(r map[string]any) (names []string) {
	list, _ := r["names"].([]any)
	for _, n := range list {
		if text, ok := n.(string); ok {
			names = append(names, text)
		}
	}
	return names
}

// remarshal copies a part of the configuration.
func remarshal(from, to any) error {
	if from == nil {
		return nil
	}
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // 64-bit numbers do not fit into a float64
	return d.Decode(to)
}
