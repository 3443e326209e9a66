// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
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

// masked is the set of arguments a for which a&mask == value, or with not, its complement.
type masked struct {
	mask, value uint64
	not         bool // only with all bits in mask, because a condition of a rule can express this
}

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
		parts = append(parts, masked{mask: at.mask | bit, value: at.value | ^o.value&bit})
		at = masked{mask: at.mask | bit, value: at.value | o.value&bit}
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
		rules = append(rules, rule{Names: []string{name}, Action: actNotify, Args: []arg{{Index: 4, Op: opEqual}, masked{mask: seen | f, value: f}.arg(3)}})
		seen |= f
	}
	allow.Args = append(allow.Args, masked{mask: seen}.arg(3))
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
	all["socket"] = among("socket", 0, []masked{{mask: low32, value: unix.AF_UNIX}, {mask: low32, value: unix.AF_ALG}}, allow, notify)
	all["socketpair"] = among("socketpair", 0, []masked{{mask: low32, value: unix.AF_TIPC}}, errno(unix.EAFNOSUPPORT), allow)
	all["shutdown"] = among("shutdown", 1, []masked{{mask: low32, value: unix.SHUT_WR}}, notify, allow)
	all["sendto"] = addressed("sendto", unix.MSG_FASTOPEN)
	all["recvfrom"] = addressed("recvfrom", unix.MSG_ERRQUEUE, unix.MSG_TRUNC)
	// Requests of sockets and of wireless devices: 0x89.. and 0x8b...
	sockets := []masked{{mask: low32 &^ 0x2ff, value: 0x8900}, {mask: low32, value: unix.SIOCOUTQ}}
	inject := masked{mask: low32, value: unix.TIOCSTI}
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
	var old []rule
	if err := remarshal(profile["syscalls"], &old); err != nil {
		return nil, fmt.Errorf("syscalls: %w", err)
	}
	var fallback rule
	if err := remarshal(map[string]any{"action": profile["defaultAction"], "errnoRet": profile["defaultErrnoRet"]}, &fallback); err != nil {
		return nil, fmt.Errorf("defaultAction: %w", err)
	}
	kept, err := intersect(old, rules(), fallback)
	if err != nil {
		return nil, err
	}
	profile["syscalls"], profile["architectures"] = kept, []string{arch}
	profile["listenerPath"] = path
	flags, _ := profile["flags"].([]any)
	profile["flags"] = append(flags, flagKillable)
	return profile, nil
}

// intersect returns the rules of a profile, where ours decide about the calls that the
// profile permits, and only about these. The rules of a call with different actions are
// disjoint. If several rules of the profile match, the strictest counts.
func intersect(profile []rule, ours map[string][]rule, fallback rule) (all []rule, err error) {
	theirs := map[string][]rule{}
	for _, r := range append(slices.Clone(profile), fallback) {
		if r.Action == actNotify {
			return nil, fmt.Errorf("the container's seccomp profile uses %s, but lklhost receives the notifications; use another profile", actNotify)
		}
	}
	for _, r := range profile {
		var others []string
		for _, name := range r.Names {
			if ours[name] == nil {
				others = append(others, name)
				continue
			}
			theirs[name] = append(theirs[name], r)
		}
		if r.Names = others; len(others) > 0 {
			all = append(all, r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		more, err := intersectCall(name, theirs[name], ours[name], fallback)
		if err != nil {
			return nil, fmt.Errorf("the rules for %s: %w", name, err)
		}
		all = append(all, more...)
	}
	return all, nil
}

// most is the maximum number of rules for a call, and of steps between. The size of a filter
// is limited.
const most = 500

var errTooMany = fmt.Errorf("more than %d are necessary to send only the permitted calls to lklhost; use a profile with fewer conditions", most)

// intersectCall is intersect for one call.
func intersectCall(name string, theirs, ours []rule, fallback rule) (all []rule, err error) {
	type permit struct {
		where  []box
		action rule
	}
	var permits []permit
	if permissive(fallback) {
		permits = []permit{{[]box{{}}, fallback}}
	}
	var denied []box
	for _, r := range theirs {
		b, err := boxes(r.Args)
		switch {
		case err != nil:
			return nil, err
		case permissive(r):
			permits = append(permits, permit{b, r})
			continue
		case !sameAction(r, fallback):
			r.Names = []string{name}
			all = append(all, r)
		}
		denied = append(denied, b...)
	}
	seen := denied // later rules for the same arguments would only repeat the action
	for _, p := range slices.Backward(permits) {
		where, err := subtract(p.where, seen)
		if err != nil {
			return nil, err
		}
		for _, b := range where {
			for _, o := range ours {
				within, err := boxes(o.Args)
				if err != nil {
					return nil, err
				}
				action := o
				if o.Action == actAllow {
					action = p.action
				}
				for _, w := range within {
					if sameAction(action, fallback) {
						continue
					}
					for _, both := range b.and(w) {
						all = append(all, rule{[]string{name}, action.Action, action.ErrnoRet, both.args()})
					}
				}
			}
		}
		if seen = append(seen, p.where...); len(all) > most {
			return nil, errTooMany
		}
	}
	return all, nil
}

func permissive(r rule) bool { return r.Action == actAllow || r.Action == "SCMP_ACT_LOG" }

func sameAction(a, b rule) bool {
	return a.Action == b.Action && (a.ErrnoRet == nil) == (b.ErrnoRet == nil) && (a.ErrnoRet == nil || *a.ErrnoRet == *b.ErrnoRet)
}

// A box is a set of arguments of a call: one masked set for each argument.
type box [6]masked

// boxes returns disjoint boxes with the arguments that meet all conditions of a rule.
func boxes(args []arg) ([]box, error) {
	all := []box{{}}
	seen := map[uint]bool{}
	for _, a := range args {
		if a.Index > 5 || seen[a.Index] {
			// OCI runtimes differ: a rule may mean all of the conditions, or one of them.
			return nil, fmt.Errorf("a rule has an unclear condition for argument %d; use one rule for each condition", a.Index)
		}
		seen[a.Index] = true
		sets, err := a.sets()
		if err != nil {
			return nil, err
		}
		if all = with(all, int(a.Index), sets); len(all) > most {
			return nil, errTooMany
		}
	}
	return all, nil
}

// sets returns disjoint sets with the values that meet the condition.
func (a arg) sets() ([]masked, error) {
	one := []masked{{mask: math.MaxUint64, value: a.Value}}
	switch a.Op {
	case opMasked:
		if a.ValueTwo&^a.Value != 0 {
			return nil, nil // no value meets it
		}
		return []masked{{mask: a.Value, value: a.ValueTwo}}, nil
	case opEqual:
		return one, nil
	case opNotEqual:
		return []masked{{math.MaxUint64, a.Value, true}}, nil
	case "SCMP_CMP_LT":
		return below(a.Value), nil
	case "SCMP_CMP_GE":
		return append(above(a.Value), one...), nil
	case "SCMP_CMP_LE":
		return append(below(a.Value), one...), nil
	case "SCMP_CMP_GT":
		return above(a.Value), nil
	}
	return nil, fmt.Errorf("unknown comparison %q", a.Op)
}

// below returns disjoint sets with the values less than n: one for each bit of n, whose
// values have this bit clear, and the bits above as in n.
func below(n uint64) (sets []masked) {
	for rest := n; rest != 0; rest &= rest - 1 {
		bit := rest & -rest
		sets = append(sets, masked{mask: ^(bit - 1), value: n &^ (bit | (bit - 1))})
	}
	return sets
}

// and returns disjoint sets with the values in both sets.
func (m masked) and(o masked) (sets []masked) {
	excluded := masked{mask: o.mask, value: o.value}
	switch {
	case m == o || o.not && m.mask == 0:
		return []masked{o}
	case m.not && o.not:
		for _, s := range complement(masked{mask: m.mask, value: m.value}) {
			sets = append(sets, s.without(excluded)...)
		}
		return sets
	case m.not:
		return o.and(m)
	case o.not:
		return m.without(excluded)
	case (m.value^o.value)&m.mask&o.mask != 0:
		return nil
	}
	return []masked{{mask: m.mask | o.mask, value: m.value | o.value}}
}

// minus returns disjoint sets with the values in m, but not in o.
func (m masked) minus(o masked) (sets []masked) {
	switch {
	case o.not:
		return m.and(masked{mask: o.mask, value: o.value})
	case m.not:
		for _, s := range complement(o) {
			sets = append(sets, s.and(m)...)
		}
		return sets
	}
	return m.without(o)
}

// above is like below, for the values greater than n.
func above(n uint64) (sets []masked) {
	for rest := ^n; rest != 0; rest &= rest - 1 {
		bit := rest & -rest
		sets = append(sets, masked{mask: ^(bit - 1), value: n&^(bit-1) | bit})
	}
	return sets
}

// with returns the boxes, where argument i is in one of the sets instead.
func with(all []box, i int, sets []masked) (changed []box) {
	for _, b := range all {
		for _, s := range sets {
			b[i] = s
			changed = append(changed, b)
		}
	}
	return changed
}

// and returns disjoint boxes with the arguments in both boxes.
func (b box) and(o box) []box {
	all := []box{b}
	for i := range b {
		all = with(all, i, b[i].and(o[i]))
	}
	return all
}

// subtract returns disjoint boxes with the arguments that are in one of the boxes from, but
// in none of the others.
func subtract(from, others []box) ([]box, error) {
	for _, o := range others {
		var next []box
		for _, b := range from {
			if len(b.and(o)) == 0 {
				next = append(next, b)
				continue
			}
			inside := []box{b} // in o with the arguments before i
			for i := range b {
				next = append(next, with(inside, i, b[i].minus(o[i]))...)
				if inside = with(inside, i, b[i].and(o[i])); len(next) > most || len(inside) > most {
					return nil, errTooMany
				}
			}
		}
		from = next
	}
	return from, nil
}

func (b box) args() (all []arg) {
	for i, m := range b {
		switch {
		case m.not:
			all = append(all, arg{Index: uint(i), Value: m.value, Op: opNotEqual})
		case m.mask == math.MaxUint64:
			all = append(all, arg{Index: uint(i), Value: m.value, Op: opEqual})
		case m.mask != 0:
			all = append(all, m.arg(uint(i)))
		}
	}
	return all
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
