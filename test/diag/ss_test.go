// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// ours returns the sockets of a busy instance as lklctl prints them, by kind and
// cookie.
func (b *busy) ours(args ...string) map[string]ourSocket {
	b.Helper()
	var list []map[string]any
	dec := json.NewDecoder(strings.NewReader(b.ctl(append([]string{"netstat", "-o", "json"}, args...)...)))
	dec.UseNumber()
	if err := dec.Decode(&list); err != nil {
		b.Fatal(err)
	}
	all := map[string]ourSocket{}
	for _, s := range list {
		all[ourSocket(s).text("cookie")] = s
	}
	return all
}

// theirs returns the same sockets as ss prints them, with all details.
func (b *busy) theirs(flags string, filter ...string) map[string]ssLine {
	b.Helper()
	all := map[string]ssLine{}
	for _, line := range kit.Lines(b.InStack(append([]string{"ss", flags}, filter...)...)) {
		s, err := parseSS(line)
		if err != nil {
			b.Fatalf("%v: %s", err, line)
		}
		cookie, err := strconv.ParseUint(s["sk"], 16, 64)
		if err != nil {
			b.Fatalf("no cookie: %s", line)
		}
		all[fmt.Sprint(cookie)] = s
	}
	return all
}

// still reports whether no packet was sent or received between two samples of a socket,
// and the program did not read or write.
func still(before, after ourSocket) bool {
	for _, path := range []string{
		"recv_q", "send_q", "tcp_info.segs_in", "tcp_info.segs_out", "timer.name",
		"mptcp_info.bytes_sent", "mptcp_info.bytes_received", "mptcp_info.bytes_acked", "skmem",
	} {
		if fmt.Sprint(before.at(path)) != fmt.Sprint(after.at(path)) {
			return false
		}
	}
	return true
}

// contradictions returns the fields of ss that contradict lklctl's samples, one taken
// just before and one just after.
func contradictions(before, after ourSocket, ss ssLine) (all []string) {
	calm := still(before, after)
	for name, value := range ss {
		if same, ok := ssWords[name]; ok {
			// These fields change with packets.
			moving := name == "timer" || name == "app_limited" || name == "flags"
			if (calm || !moving) && !same(before, value) && !same(after, value) {
				all = append(all, fmt.Sprintf("%s:%s", name, value))
			}
			continue
		}
		if _, ok := ssNumbers[name]; !ok && !ssNotOurs[name] {
			all = append(all, fmt.Sprintf("%s:%s, which nobody compares", name, value))
		}
	}
	for name, f := range ssNumbers {
		theirs := f.zero
		text, said := ss[name]
		if group, _, ok := strings.Cut(f.path, "."); !said && ok && (before.at(group) == nil || ss["state"] == "LISTEN") {
			continue // of another kind
		}
		if said {
			var err error
			if theirs, err = strconv.ParseFloat(text, 64); err != nil {
				all = append(all, fmt.Sprintf("%s:%s is no number", name, text))
				continue
			}
		}
		low, known := before.value(f)
		high, _ := after.value(f)
		if !known && theirs != f.zero {
			all = append(all, fmt.Sprintf("%s:%s, which we do not know", name, text))
			continue
		}
		ok := nearly(low, theirs, name) || nearly(high, theirs, name)
		switch f.how {
		case grows:
			ok = ok || low <= theirs && theirs <= high
		case clock:
			ok = ok || !calm || low <= theirs && theirs <= high
		case moves:
			ok = ok || !calm
		}
		if !ok {
			all = append(all, fmt.Sprintf("%s:%s (ours %g, then %g)", name, text, low, high))
		}
	}
	return all
}

// TestSS checks that each field of each socket of a busy instance agrees with the
// unmodified ss. Constant fields must always agree. Growing ones must lie between
// lklctl's samples before and after. All fields must agree once for each socket, at a
// moment without packets.
func TestSS(t *testing.T) {
	t.Parallel()
	b := newBusy(t, "supervise")
	agreed := map[string]bool{}
	look := func() (all int) {
		before := b.ours()
		theirs := b.theirs("-tuwMinpmeaOHo")
		after := b.ours()
		for cookie, ss := range theirs {
			x, was := before[cookie]
			y, is := after[cookie]
			if !was || !is {
				t.Fatalf("ss has a socket that we have not: %v", ss)
			}
			if wrong := contradictions(x, y, ss); len(wrong) > 0 {
				slices.Sort(wrong)
				t.Fatalf("ss says otherwise: %s\nof %v\nbefore %v\nafter %v", strings.Join(wrong, ", "), ss, x, y)
			}
			if still(x, y) {
				agreed[cookie] = true
			}
		}
		for cookie, s := range before {
			if _, ok := theirs[cookie]; !ok {
				t.Fatalf("we have a socket that ss has not: %v", s)
			}
		}
		return len(theirs)
	}
	for range 3 {
		if n := look(); n < 18 {
			t.Fatalf("%d sockets are too few: %s", n, b.ctl("netstat"))
		}
	}
	t.Logf("%d sockets were still while all was busy", len(agreed))

	// Receivers stop reading, so their windows close, and clients stop sending requests.
	// Then the sockets become idle.
	pause := []int{b.clients[0].Pid()}
	for _, s := range b.ours("-M", "state", "established") {
		procs, _ := s.at("processes").([]any) // without an owner, there are no entries
		for _, p := range procs {
			pause = append(pause, int(ourSocket(p.(map[string]any)).number("pid")))
		}
	}
	for _, pid := range pause {
		kit.Pause(t, pid, kit.Limit)
	}
	kit.WaitFor(t, "a still moment for each socket", kit.TransferLimit, func() bool { return look() == len(agreed) })
	b.compareNetstat()
	b.compareProc()
	for _, pid := range pause {
		if err := unix.Kill(pid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	b.end()
}

// compareNetstat compares lklctl's sockets with the output of netstat -anp from
// net-tools.
func (b *busy) compareNetstat() {
	b.Helper()
	var theirs []string
	for _, line := range kit.Lines(b.InStack("netstat", "-anp", "--inet", "--inet6")) {
		f := strings.Fields(line)
		if len(f) < 6 || !strings.HasPrefix(f[0], "tcp") && !strings.HasPrefix(f[0], "udp") && f[0] != "raw" {
			continue // headings
		}
		state, who := f[5], f[len(f)-1]
		if f[0] != "tcp" && f[0] != "tcp6" && len(f) == 6 || f[0] == "raw" {
			state = ""
		}
		if i := slices.IndexFunc(f, func(w string) bool { return strings.Contains(w, "/") }); i >= 0 {
			who = f[i] // a process title may contain blanks
		}
		pid, _, _ := strings.Cut(who, "/")
		theirs = append(theirs, strings.Join([]string{f[0], f[3], f[4], state, pid}, " "))
	}
	var ours []string
	states := map[string]string{"ESTAB": "ESTABLISHED", "LISTEN": "LISTEN"}
	plain := strings.NewReplacer("[", "", "]", "")
	for _, s := range b.ours("-tuw") {
		proto := s.text("proto")
		if s.text("family") == "inet6" {
			proto += "6"
		}
		ours = append(ours, strings.Join([]string{proto, plain.Replace(s.text("local")), plain.Replace(s.text("remote")), states[s.text("state")], s.text("pid")}, " "))
	}
	slices.Sort(theirs)
	slices.Sort(ours)
	if !slices.Equal(ours, theirs) {
		b.Errorf("netstat -anp:\n%s\nours:\n%s", strings.Join(theirs, "\n"), strings.Join(ours, "\n"))
	}
}

// compareProc compares lklctl's sockets with the stack's /proc files: state, queues,
// user, inode.
func (b *busy) compareProc() {
	b.Helper()
	for _, kind := range []struct{ file, flags string }{{"tcp", "-t4"}, {"tcp6", "-t6"}, {"udp", "-u4"}, {"udp6", "-u6"}, {"raw", "-w4"}} {
		var theirs []string
		for i, line := range kit.Lines(b.ctl("cat", "/proc/net/"+kind.file)) {
			if f := strings.Fields(line); i > 0 {
				_, port, _ := strings.Cut(f[1], ":")
				_, peer, _ := strings.Cut(f[2], ":")
				theirs = append(theirs, strings.Join([]string{port, peer, f[3], f[7], f[9]}, " "))
			}
		}
		// The numbers and the names are those of include/net/tcp_states.h.
		states := map[string]int{"ESTAB": 1, "UNCONN": 7, "LISTEN": 10}
		var ours []string
		out := b.ctl("netstat", "-o", "json", kind.flags)
		var list []struct {
			Local, Remote, State string
			UID, Inode           int
		}
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			b.Fatal(err)
		}
		port := func(addr string) string {
			n, _ := strconv.Atoi(addr[strings.LastIndex(addr, ":")+1:]) // "*" becomes 0
			return fmt.Sprintf("%04X", n)
		}
		for _, s := range list {
			ours = append(ours, fmt.Sprintf("%s %s %02X %d %d", port(s.Local), port(s.Remote), states[s.State], s.UID, s.Inode))
		}
		slices.Sort(theirs)
		slices.Sort(ours)
		if !slices.Equal(ours, theirs) {
			b.Errorf("/proc/net/%s:\n%s\nours:\n%s", kind.file, strings.Join(theirs, "\n"), strings.Join(ours, "\n"))
		}
	}
}
