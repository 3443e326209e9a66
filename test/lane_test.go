// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/testutil"
)

// laneVariable gives each lklrun of a test --lane.
const laneVariable = "LKLRUN_LANE"

// laned tells whether the test's runs have it.
func laned() bool { return os.Getenv(laneVariable) == "on" }

// Where there is no memory to share, one line says so, and nothing is done.
func TestLaneRefused(t *testing.T) {
	s := newSite(t)
	without := testutil.PublicBin(t)
	if err := os.Remove(without + "/liblkllane.so"); err != nil {
		t.Fatal(err)
	}
	blank := filepath.Join(testutil.Dir(t), "a b")
	testutil.Host.Run(t, "cp", "-rL", testutil.Bin(""), blank)
	before := testutil.Take(t, s.server)
	for _, tt := range []struct{ bin, names, flags string }{
		{testutil.Bin(""), `--lane: with the engine preload the stack is in the program itself; .*--engine supervise`, "--lane --engine preload"},
		{testutil.Bin(""), `--lane: the stack is the host's own kernel`, "--lane --stack host"},
		{testutil.Bin(""), `--lane "maybe"; expected true or false`, "--lane=maybe"},
		{without, `--lane: ` + without + `/liblkllane.so: no such file or directory; build it with .make build.`, "--lane"},
		{blank, `--lane: ".*a b/liblkllane.so": LD_PRELOAD cannot name a file with blanks`, "--lane"},
	} {
		args := append(strings.Fields(tt.flags), "--", "true")
		oneLine(t, testutil.Run(t, limit, exec.Command(tt.bin+"/lklrun", args...)), 2, tt.names)
		before.Same()
	}
}

// A laneRun is a program under --lane that waits, beside which others run by
// lklctl exec, as they have the lane too.
type laneRun struct {
	*running
	dir string // of a web server beyond the wire: www/file, and www/up/ for what is put there
}

const laneSize = 64 << 20

func (s *site) laneRun() *laneRun {
	t := s.t
	t.Helper()
	t.Setenv(laneVariable, "on")
	dir := testutil.Dir(t)
	server := testutil.Start(t, s.server.Command(webServer(t)(dir)...))
	testutil.WaitFor(t, "nginx", limit, func() bool { return !server.Running() || s.server.Listening(t, "t", 80) })
	testutil.Random(t, dir+"/www/file", laneSize)
	r := &laneRun{s.starts("mptcp", "sleep", "1000"), dir}
	testutil.WaitFor(t, "the run", limit, func() bool {
		return exec.Command(testutil.Bin("lklctl"), "exec", "-n", r.name, "--", "true").Run() == nil
	})
	return r
}

// sh is a shell's command line in the run, which must end well and say nothing wrong.
func (r *laneRun) sh(format string, args ...any) string {
	r.t.Helper()
	got := testutil.Run(r.t, 2*limit, exec.Command(testutil.Bin("lklctl"), "exec", "-n", r.name, "--", "sh", "-c", fmt.Sprintf(format, args...)))
	if got.Status != 0 || got.Stderr != "" {
		r.t.Fatalf("%s: %v", fmt.Sprintf(format, args...), got)
	}
	return got.Stdout
}

func (r *running) counter(name string) int64 {
	r.t.Helper()
	all := parseJSON[numbers](r.t, lklctl(r.t, "counters", "-n", r.name, "-o", "json"))
	n, ok := all[name]
	if !ok {
		r.t.Fatalf("lklctl counters has no %s", name)
	}
	return n
}

// pids are the process ids of lklhost and of the program.
func (r *running) pids() (host, target int) {
	r.t.Helper()
	for _, i := range parseJSON[[]struct {
		Name   string `json:"name"`
		Host   int    `json:"host_pid"`
		Target int    `json:"target_pid"`
	}](r.t, lklctl(r.t, "list", "-o", "json")) {
		if i.Name == r.name {
			return i.Host, i.Target
		}
	}
	r.t.Fatalf("there is no run %s", r.name)
	return 0, 0
}

func (r *running) host() int {
	host, _ := r.pids()
	return host
}

func (r *running) target() int {
	_, target := r.pids()
	return target
}

// lanes is how many connections' memory lklhost maps.
func (r *running) lanes() int {
	r.t.Helper()
	return strings.Count(read(r.t, fmt.Sprintf("/proc/%d/maps", r.host())), "memfd:lklrun-lane")
}

// What curl sends goes by the memory, and is right, as what it gets is; a capture shows the
// packets as ever. Programs that cannot have it run beside, and nobody says a word.
func TestLane(t *testing.T) {
	testutil.Need(t, "gcc", "musl-gcc")
	s := newSite(t)
	before := testutil.Take(t, s.server)
	t.Run("", func(t *testing.T) {
		s := s.in(t)
		r := s.laneRun()
		want := sum(t, r.dir+"/www/file")
		trace := testutil.Dir(t) + "/trace.pcapng"
		capture := testutil.Start(t, exec.Command(testutil.Bin("lklctl"), "capture", "-n", r.name, "-c", "200", "-s", "96", "-w", trace, "tcp", "port", "80"))
		testutil.WaitFor(t, "the capture", limit, func() bool { _, errs := capture.Output(); return strings.Contains(errs, "capturing on") })

		// sends runs something that puts the file, and tells how much of it went by the lane.
		sends := func(name, format string, args ...any) int64 {
			t.Helper()
			was := r.counter("engine.lane.sent")
			r.sh(format, args...)
			if got := sum(t, r.dir+"/www/up/"+name); got != want {
				t.Errorf("%s sent %s, want %s", name, got, want)
			}
			n := r.counter("engine.lane.sent") - was
			t.Logf("%s: %d of %d bytes by the lane", name, n, laneSize)
			return n
		}
		least := func(name string, n int64) {
			t.Helper()
			if n < laneSize/2 {
				t.Errorf("%s: %d bytes of %d went by the lane", name, n, laneSize)
			}
		}
		least("curl", sends("curl", "curl -sSf -H Expect: -T %s/www/file http://%s/up/curl", r.dir, serverAddr))
		least("python3", sends("python3", `/usr/bin/python3 -c 'import http.client as h
c = h.HTTPConnection("%s", blocksize=1 << 18)
c.request("PUT", "/up/python3", open("%s/www/file", "rb"), {"Content-Length": "%d"})
c.getresponse()'`, serverAddr, r.dir, laneSize))
		for name, get := range map[string]string{"curl": "curl -sSf", "wget": "wget -qO-", "a static Go program": probePath + " get"} {
			if got := r.sh("%s http://%s/file | sha256sum", get, serverAddr); !strings.HasPrefix(got, want) {
				t.Errorf("%s got %q, want %s", name, got, want)
			}
		}

		dir := testutil.Dir(t)
		source := filepath.Join(testutil.Root(), "test", "testdata", "put.c")
		for name, cc := range map[string][]string{"glibc": {"gcc"}, "musl": {"musl-gcc"}, "static": {"gcc", "-static"}} {
			testutil.Host.Run(t, append(slices.Clone(cc), "-O2", "-Wall", "-Wextra", "-Werror", "-o", dir+"/"+name, source)...)
			n := sends(name, "%s/%s %s /up/%s %d <%s/www/file", dir, name, serverAddr, name, laneSize, r.dir)
			switch name {
			case "glibc":
				least(name, n)
			case "static":
				if n != 0 {
					t.Errorf("%d bytes of a static program's went by the lane", n)
				}
			}
		}
		// What the user has loaded stays, behind ours.
		if got := r.sh("LD_PRELOAD= sh -c 'echo $LD_PRELOAD'"); got != "\n" {
			t.Errorf("without it: %q", got)
		}
		if got := r.sh("echo $LD_PRELOAD"); !strings.HasSuffix(strings.Split(strings.TrimSpace(got), ":")[0], "/liblkllane.so") {
			t.Errorf("LD_PRELOAD is %q", got)
		}

		if got := capture.Wait(limit); got.Status != 0 {
			t.Errorf("lklctl capture: %v", got)
		}
		packets, seen := shown(t, false, trace, "tcp.len"), 0
		for _, f := range packets {
			n, err := strconv.Atoi(f[0])
			if err != nil {
				t.Fatalf("%v in %q", err, packets)
			}
			seen += n
		}
		if len(packets) != 200 || seen < 200<<10 {
			t.Errorf("the capture shows %d packets with %d bytes", len(packets), seen)
		}
		if !testutil.Within(limit, func() bool { return r.lanes() == 0 }) {
			t.Errorf("lklhost has %d lanes, and no connection", r.lanes())
		}
		r.proc.Signal(unix.SIGTERM)
		r.proc.Wait(limit)
	})
	for _, pid := range strings.Fields(testutil.Host.Run(t, "ip", "netns", "pids", s.server.Name)) { // nginx
		_ = exec.Command("kill", "-9", pid).Run() // ended already
	}
	before.Settles(limit)
}

// Another user's programs have it where that user can read the library; elsewhere they
// run without, and their loader has nothing to say.
func TestLaneUser(t *testing.T) {
	s := newSite(t)
	s.web(testutil.Nginx{})
	public := testutil.PublicBin(t)
	hidden := testutil.PublicBin(t)
	if err := os.Chmod(filepath.Dir(hidden), 0o700); err != nil {
		t.Fatal(err)
	}
	for bin, loaded := range map[string]string{public: public + "/liblkllane.so\n", hidden: "\n"} {
		got := testutil.Run(t, limit, exec.Command(bin+"/lklrun", "--lane", "--user", fmt.Sprint(testutil.OrdinaryUID, ":", testutil.OrdinaryUID), "--if", s.tapIf(), "--",
			"sh", "-c", "echo $LD_PRELOAD; curl -sS "+serverURL+"/hello"))
		if got.Status != 0 || got.Stdout != loaded+"hello\n" || got.Stderr != "" {
			t.Errorf("%s: %v, want %s", bin, got, loaded)
		}
	}
}

// The tables of programs that there are, or a good part of them, under --lane.
func TestLanePrograms(t *testing.T) {
	t.Setenv(laneVariable, "on")
	if os.Getenv("SOAK_SECONDS") == "" {
		t.Setenv("SOAK_SECONDS", "6")
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"iperf3", TestProgIperf3}, {"web", TestProgWeb}, {"rsync", TestProgRsync}, {"ssh", TestProgSSH},
		{"half-closed", TestProgHalfClose}, {"servers", TestServers}, {"every end of a connection", TestSoak},
	} {
		t.Run(test.name, test.run)
	}
}
