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
	"sync"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/testutil"
)

// The driver suite: the same things are asked of each kind of interface, under
// each engine. DRIVER_SECONDS is how long the traffic of each lasts, 2 by
// default; `make drivers` takes a minute.

// The addresses of a wire, the same in each: every wire has namespaces of its own.
const (
	farAddr, farAddr6     = "10.90.0.1", "fd90::1"
	hereAddr, hereAddr6   = "10.90.0.2", "fd90::2"
	guestAddr, guestAddr6 = "10.90.0.10", "fd90::10"
	echoPort              = 7
)

// A wire is the network around one stack:
//
//	here: v0 ─── s0 ─ wan 10.90.0.1 :far
//	  └── lklrun, with what the driver puts between v0 and the stack
//
// lay, of a driver, fills it in.
type wire struct {
	*testing.T
	here, far *testutil.Netns
	as        []string // what begins lklrun's command line; empty: it is ours

	last   string     // instance name that was given last
	flag   string     // --if, without offload
	more   []string   // further flags of lklrun
	files  []*os.File // it inherits, from 3 on
	guests []string   // addresses at which far reaches what the stack serves; ports as they are
	fars   []string   // far's addresses, as the stack calls them; none: the default
	near   string     // one that the stack reaches without a router
	pinged []string   // addresses that answer a ping; none: fars
	mtu    int        // 0: 1500
	fixed  bool       // it has no offloads to turn off
	made   bool       // the device is there in the run only
	remove func()     // takes the device away under us; nil: it cannot be
	said   string     // what lklrun says then
	cut    func()     // what keeps frames from passing; nil: far's end of the wire is down
	mend   func()
}

// A driver is a kind of interface.
type driver struct {
	name  string
	needs []string
	lay   func(w *wire)
}

// drivers are all that the suite is about.
var drivers = []driver{
	{"tap", nil, layTap},
	{"user", nil, layUser},
	{"fd, a socket", nil, laySocket},
	{"fd, a tap", nil, layTapFD},
	{"tap, bridged by the run", nil, layBridged},
	{"tap, nat", nil, layNAT},
	{"macvtap", nil, layMacvtap},
	{"macvtap, one that exists", nil, layOldMacvtap},
}

// steps are what is asked of each, in this order: the last ones leave less
// behind than they found.
var driverSteps = []struct {
	name string
	do   func(d *driven)
}{
	{"ping", (*driven).ping},
	{"TCP from the stack", (*driven).tcpOut},
	{"TCP to the stack", (*driven).tcpIn},
	{"UDP", (*driven).udp},
	{"MTU", (*driven).path},
	{"traffic, and the wire is cut in it", (*driven).traffic},
	{"link down and up", (*driven).downUp},
	{"device deleted", (*driven).deleted},
}

// A driven is a stack on a wire, with a program that does what it is told.
type driven struct {
	*wire
	*talker
}

func TestDrivers(t *testing.T) {
	testutil.Need(t, "ip", "ping", "/usr/bin/python3", testutil.Bin("lklrun"), testutil.Bin("lklhost"))
	before := testutil.Take(t)
	t.Cleanup(func() { before.Settles(limit) }) // of all the parallel ones
	for _, d := range drivers {
		for _, engine := range []string{"supervise", "preload"} {
			t.Run(d.name+", "+engine, func(t *testing.T) {
				t.Parallel()
				testutil.Need(t, d.needs...)
				w := newWire(t)
				d.lay(w)
				was := w.state()
				if !w.fixed {
					w.plain(engine)
					w.same(was)
				}
				w.all(engine)
				if w.remove == nil || w.made { // else a device is gone
					w.same(was)
				}
			})
		}
	}
}

// all does all steps in one run.
func (w *wire) all(engine string) {
	d := w.start(engine, w.flag)
	for _, s := range driverSteps {
		began := time.Now()
		s.do(d)
		w.Logf("%s: %v", s.name, time.Since(began).Round(time.Millisecond))
		if w.Failed() {
			_, errs := d.proc.Output()
			w.Fatalf("%s; lklrun said:\n%s", s.name, errs)
		}
	}
	d.ends()
}

// plain is a run without offloads.
func (w *wire) plain(engine string) {
	d := w.start(engine, w.flag+",offload=off")
	d.ping()
	d.tcpOut()
	d.tcpIn()
	d.udp()
	d.ends()
}

// start starts the program that does what it is told.
func (w *wire) start(engine, flag string) *driven {
	w.Helper()
	script := filepath.Join(testutil.Root(), "test", "testdata", "driver.py")
	if len(w.as) > 0 {
		script = public(w.T, script)
	}
	cmd := w.run(engine, flag, "/usr/bin/python3", "-u", script)
	return &driven{w, startTalker(w.T, w.last, cmd)}
}

// run is a command line of lklrun on the wire.
func (w *wire) run(engine, flag string, command ...string) *exec.Cmd {
	w.last = fmt.Sprintf("d%d", runCount.Add(1))
	args := w.as
	if len(args) == 0 {
		args = []string{testutil.Bin("lklrun")}
	}
	args = append(slices.Clone(args), "--name", w.last, "--engine", engine, "--if", flag, "--sysctl", "net.ipv4.ping_group_range=0 2147483647")
	cmd := w.here.Command(append(append(append(args, w.more...), "--"), command...)...)
	cmd.ExtraFiles = w.files
	return cmd
}

// in is the wire for a subtest.
func (w *wire) in(t *testing.T) *wire {
	sub := *w
	sub.T = t
	return &sub
}

// ends lets the program end, which must leave nothing.
func (d *driven) ends() {
	d.T().Helper()
	if r := d.end(); r.Status != 0 {
		d.T().Errorf("the program: %v", r)
	}
	if _, err := os.Stat("/run/lklrun/" + d.name); err == nil {
		d.T().Errorf("the run directory of %s is still there", d.name)
	}
	for _, pid := range strings.Fields(testutil.Host.Run(d.T(), "ip", "netns", "pids", d.here.Name)) {
		d.T().Errorf("process %s is left", pid)
	}
}

// T is the test, which both parts of a driven have.
func (d *driven) T() *testing.T { return d.wire.T }

// is has the program evaluate an expression, which must come to want.
func (d *driven) is(want, format string, args ...any) {
	d.T().Helper()
	if got := d.say(format, args...); got != want {
		d.T().Errorf("%s: %s, want %s", fmt.Sprintf(format, args...), got, want)
	}
}

func newWire(t *testing.T) *wire {
	w := &wire{T: t, here: testutil.NewNetns(t, "here"), far: testutil.NewNetns(t, "far")}
	testutil.Veth(t, w.here, "v0", w.far, "s0")
	// The addresses are the bridge's, so that they stay when s0 goes down.
	w.far.Bridge(t, "wan", "s0")
	w.far.Addr(t, "wan", farAddr+"/24", farAddr6+"/64")
	w.far.EchoUDP(t, fmt.Sprintf("%s:%d", farAddr, echoPort))
	w.far.EchoUDP(t, fmt.Sprintf("[%s]:%d", farAddr6, echoPort))
	w.fars, w.near = []string{farAddr, farAddr6}, farAddr
	w.guests = []string{guestAddr, guestAddr6}
	w.cut = func() { w.far.Run(t, "ip", "link", "set", "s0", "down") }
	w.mend = func() { w.far.Run(t, "ip", "link", "set", "s0", "up") }
	return w
}

// same checks that a run has left nothing changed.
func (w *wire) same(was string) {
	w.Helper()
	if now := w.state(); now != was {
		w.Errorf("lklrun's host was\n%s\nand is\n%s", was, now)
	}
}

// state is what a run could leave changed in the namespace of lklrun.
func (w *wire) state() string {
	w.Helper()
	var all []string
	// ip complains of other tests' namespaces that go while it looks.
	for _, line := range strings.Split(w.here.Run(w.T, "sh", "-c", "ip -br link 2>/dev/null"), "\n") {
		if f := strings.Fields(line); len(f) > 0 {
			all = append(all, f[0])
		}
	}
	all = append(all, w.here.Run(w.T, "nft", "list", "ruleset"))
	for _, save := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
		for _, line := range strings.Split(w.here.Run(w.T, save), "\n") {
			if strings.HasPrefix(line, "-A") {
				all = append(all, line)
			}
		}
	}
	all = append(all, w.here.Run(w.T, "sysctl", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv4.ip_local_reserved_ports",
		"net.ipv4.conf.v0.forwarding", "net.ipv6.conf.v0.accept_ra"))
	all = append(all, w.here.Run(w.T, "sh", "-c", "ip -br addr show dev v0 scope global 2>/dev/null"))
	return strings.Join(all, "\n")
}

func (d *driven) ping() {
	for _, a := range append(d.pinged, d.fars[len(d.fars)*min(len(d.pinged), 1):]...) {
		d.is("answered", "ping(%q)", a)
	}
}

// tcpSize is the data of each direction of a connection, enough for windows and
// aggregates to grow.
const tcpSize = 4 << 20

// both checks what the two ends of a connection say of what they sent and
// received.
func (d *driven) both(ours string, far sums) {
	d.T().Helper()
	if far.err != nil {
		d.T().Errorf("far: %v; here: %s", far.err, ours)
	} else if want := far.received + " " + far.sent; ours != want {
		d.T().Errorf("checksums %s, far says %s", ours, want)
	}
}

func (d *driven) tcpOut() {
	for _, a := range d.fars {
		port, far := d.serveFar(a, flow{size: tcpSize})
		d.both(d.say("connect(%q, %d, %d)", a, port, tcpSize), far())
	}
}

// guestPort is what the stack serves.
const guestPort = 8080

func (d *driven) tcpIn() {
	for _, a := range d.guests {
		d.is("None", "listen(%d, %s)", guestPort, pyBool(strings.Contains(a, ":")))
		far := d.dialFar(a, guestPort, flow{size: tcpSize})
		d.both(d.say("accept(%d)", tcpSize), far())
		d.is("None", "keep['listener'].close()")
	}
}

func pyBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func (d *driven) udp() {
	for _, a := range d.fars {
		for _, size := range []int{1, 1200, 8000} { // the last one in fragments, where the MTU is 1500
			d.is("echoed", "udp(%q, %d, %d)", a, echoPort, size)
		}
	}
	for _, a := range d.guests {
		d.is("None", "echo(%d, %s)", guestPort, pyBool(strings.Contains(a, ":")))
		if err := d.askFar(a, guestPort); err != nil {
			d.T().Errorf("a datagram to %s: %v", a, err)
		}
	}
}

// path checks the MTU: what fills it arrives, what is one byte larger may not
// leave uncut.
func (d *driven) path() {
	mtu := d.mtu
	if mtu == 0 {
		mtu = 1500
	}
	for _, a := range append(d.pinged, d.fars[len(d.fars)*min(len(d.pinged), 1):]...) {
		head := 20 + 8
		if strings.Contains(a, ":") {
			head = 40 + 8
		}
		d.is("answered", "ping(%q, %d)", a, mtu-head)
		if got := d.say("ping(%q, %d)", a, mtu-head+1); !strings.Contains(got, "Message too long") {
			d.T().Errorf("a packet of %d bytes to %s: %s", mtu+1, a, got)
		}
	}
}

// trafficRate is in bytes a second and direction.
const trafficRate = 1 << 20

// traffic goes both ways for a while, and the wire is cut in the midst of it:
// the connection survives.
func (d *driven) traffic() {
	seconds := 2
	if n, err := strconv.Atoi(os.Getenv("DRIVER_SECONDS")); err == nil {
		seconds = n
	}
	half := make(chan struct{})
	port, far := d.serveFar(d.fars[0], flow{seconds: seconds, rate: trafficRate, half: half})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		select {
		case <-half:
		case <-time.After(farLimit): // it has failed: its end says how
		}
		d.cut()
		time.Sleep(200 * time.Millisecond) // long enough for something to be lost
		d.mend()
	})
	ours := d.say("connect(%q, %d, 0, %d, %d)", d.fars[0], port, trafficRate, seconds)
	cutting.Wait()
	d.both(ours, far())
}

// downUp sets the stack's device down and up again.
func (d *driven) downUp() {
	d.is("None", "link(False)")
	if got := d.say("dial(%q, 9)", d.near); got != "ENETUNREACH" {
		d.T().Errorf("connecting while the device is down: %s", got)
	}
	d.is("None", "link(True)")
	d.is("answered", "ping(%q)", d.near)
}

// deleted takes the device away under the stack: lklrun says so in one line, and
// the program hears it.
func (d *driven) deleted() {
	if d.remove == nil {
		return
	}
	d.remove()
	ok := testutil.Within(limit, func() bool { _, errs := d.proc.Output(); return d.said != "" && strings.Contains(errs, d.said) })
	if _, errs := d.proc.Output(); !ok || strings.Count(errs, d.said) != 1 {
		d.T().Errorf("want one line with %q: %s", d.said, errs)
	}
	if !testutil.Within(limit, func() bool { return d.say("dial(%q, 9)", d.near) == "ENETUNREACH" }) {
		d.T().Errorf("connecting without a device: %s", d.say("dial(%q, 9)", d.near))
	}
}
