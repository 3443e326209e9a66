// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// TestManySockets opens thousands of connections in one target, whose only limit is its
// own limit of descriptors. It also checks that a stack without free memory refuses
// sockets and continues.
func TestManySockets(t *testing.T) {
	s := kit.NewSite(t)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	// A connection to itself uses two descriptors in the program, and two in lklhost.
	most := min(10000, int(files.Max)/2-100)
	if most < 5000 {
		t.Fatalf("the hard limit of descriptors is %d; 10200 are needed (ulimit -Hn)", files.Max)
	}
	script := kit.TestData("many.py")
	for _, tt := range []struct {
		name           string
		flags          []string
		want, files    int
		least, highest int
		stopped        string
	}{
		{"as many as wanted", nil, most, 2*most + 50, most, most, "all"},
		{"the target's limit", nil, most, 513, 250, 256, "EMFILE"},
		{"the target's limit at accept", nil, most, 512, 250, 256, "accept: EMFILE"},
		{"little memory", []string{"--mem", "32M"}, most, 2*most + 50, 500, 5000, "ENOBUFS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := kit.Take(t, s.Server)
			args := append(tt.flags, "--name", kit.NewName(), "--if", s.TapIf(), "--", "/usr/bin/python3", script, fmt.Sprint(tt.want), fmt.Sprint(tt.files))
			r := kit.Run(t, 3*kit.Limit, kit.Lklrun(args...))
			var n, rss, after int
			said := kit.Lines(r.Stdout)
			if r.Status != 0 || len(said) != 2 || strings.Join(strings.Fields(said[0])[1:len(strings.Fields(said[0]))-1], " ") != tt.stopped {
				t.Fatalf("%v\nwant it stopped by %s", r, tt.stopped)
			}
			first := strings.Fields(said[0])
			if _, err := fmt.Sscan(first[0]+" "+first[len(first)-1], &n, &rss); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Sscanf(said[1], "again %d", &after); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d connections to itself, %d kB in the stack host, %d kB after them", n, rss, after)
			if n < tt.least || n > tt.highest {
				t.Errorf("%d connections, want %d to %d", n, tt.least, tt.highest)
			}
			if short := strings.Contains(r.Stderr, "use --mem for more memory"); short != (tt.stopped == "ENOBUFS") {
				t.Errorf("whether memory is short: %s", r.Stderr)
			}
			before.Same()
		})
	}
}

// TestNoDescriptors checks a run in which lklhost has no descriptor left (finding 12): new
// sockets fail with ENOBUFS, a line names the reason, existing sockets work, and no data is
// lost.
func TestNoDescriptors(t *testing.T) {
	for _, files := range []string{"110", "130", "150", "151", "200"} {
		t.Run(files, func(t *testing.T) {
			r := kit.Run(t, kit.Limit, exec.Command("prlimit", "--nofile="+files+":"+files, kit.Bin("lklrun"), "-q", "--name", kit.NewName(), "--",
				"/usr/bin/python3", kit.TestData("few.py")))
			// The target has the same limit, and may reach it first, or after a connection is closed.
			ended := slices.Contains([]string{"ENOBUFS ENOBUFS done\n", "EMFILE ENOBUFS done\n", "ENOBUFS EMFILE done\n"}, r.Stdout)
			if r.Status != 0 || !ended || len(kit.Lines(r.Stderr)) != 1 || !strings.Contains(r.Stderr, "lklhost has no free descriptor") {
				t.Errorf("%v", r)
			}
		})
	}
}
