// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// The driver suite runs the same checks on each kind of interface, under each engine.
// DRIVER_SECONDS is the duration of the traffic on each interface, 2 by default. `make
// drivers` uses a minute.

// The addresses of a wire. All wires use the same ones, because each has namespaces of
// its own.
const (
	farAddr, farAddr6     = "10.90.0.1", "fd90::1"
	hereAddr, hereAddr6   = "10.90.0.2", "fd90::2"
	guestAddr, guestAddr6 = "10.90.0.10", "fd90::10"
	echoPort              = 7
)

// A wire is the network around one stack:
//
//	here: v0 ─── s0 ─ wan 10.90.0.1 :far
//	  └── lklrun, with the driver's devices between v0 and the stack
//
// Each driver has a function lay, which sets the wire's fields.
type wire struct {
	*testing.T
	here, far *kit.Netns
	as        []string // prefix of lklrun's command line; if empty, lklrun runs as this process

	last   string     // the last instance name
	flag   string     // --if, without offload
	more   []string   // further flags of lklrun
	files  []*os.File // inherited descriptors, from 3 on
	guests []string   // addresses at which far reaches the stack's servers; ports are unchanged
	fars   []string   // far's addresses as seen by the stack; if empty, the default addresses
	near   string     // an address that the stack reaches without a router
	pinged []string   // addresses that answer pings; if empty, fars
	mtu    int        // 0 means 1500
	fixed  bool       // the device has no offloads that can be turned off
	made   bool       // the device exists only during the run
	remove func()     // removes the device during a run; nil if this is impossible
	said   string     // lklrun's message after remove
	cut    func()     // stops frames; if nil, far's end of the wire is set down
	mend   func()
}

// A driver is a kind of interface.
type driver struct {
	name  string
	needs []string
	lay   func(w *wire)
}

// drivers are all kinds of interface that the suite tests.
var drivers = []driver{
	{"tap", nil, layTap},
	{"user", nil, layUser},
	{"fd, a socket", nil, laySocket},
	{"fd, a tap", nil, layTapFD},
	{"tap, bridged by the run", nil, layBridged},
	{"tap, nat", nil, layNAT},
	{"udp", nil, layUDP},
	{"macvtap", nil, layMacvtap},
	{"macvtap, one that exists", nil, layOldMacvtap},
}

// driverSteps are the checks of each driver, in this order. The last steps change or
// remove the device.
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

// A driven is a stack on a wire. Its program evaluates the expressions of the test.
type driven struct {
	*wire
	*kit.Talker
}

func TestDrivers(t *testing.T) {
	kit.Need(t, "ip", "ping", "/usr/bin/python3", kit.Bin("lklrun"), kit.Bin("lklhost"))
	before := kit.Take(t)
	t.Cleanup(func() { before.Settles(kit.Limit) }) // of all parallel subtests
	for _, d := range drivers {
		for _, engine := range []string{"supervise", "preload"} {
			t.Run(d.name+", "+engine, func(t *testing.T) {
				t.Parallel()
				kit.Need(t, d.needs...)
				w := newWire(t)
				d.lay(w)
				was := w.state()
				if !w.fixed {
					w.plain(engine)
					w.same(was)
				}
				w.all(engine)
				if w.remove == nil || w.made { // otherwise a device is missing
					w.same(was)
				}
			})
		}
	}
}

// all runs all steps of driverSteps in one run.
func (w *wire) all(engine string) {
	d := w.start(engine, w.flag)
	for _, s := range driverSteps {
		began := time.Now()
		s.do(d)
		w.Logf("%s: %v", s.name, time.Since(began).Round(time.Millisecond))
		if w.Failed() {
			_, errs := d.Proc.Output()
			w.Fatalf("%s; lklrun said:\n%s", s.name, errs)
		}
	}
	d.ends()
}

// plain checks a run without offloads.
func (w *wire) plain(engine string) {
	d := w.start(engine, w.flag+",offload=off")
	d.ping()
	d.tcpOut()
	d.tcpIn()
	d.udp()
	d.ends()
}

// start starts the program that evaluates expressions.
func (w *wire) start(engine, flag string) *driven {
	w.Helper()
	script := kit.TestData("driver.py")
	if len(w.as) > 0 {
		script = public(w.T, script)
	}
	cmd := w.run(engine, flag, "/usr/bin/python3", "-u", script)
	return &driven{w, kit.StartTalker(w.T, w.last, cmd)}
}

// run is a command line of lklrun on the wire.
func (w *wire) run(engine, flag string, command ...string) *exec.Cmd {
	w.last = kit.NewName()
	args := w.as
	if len(args) == 0 {
		args = []string{kit.Bin("lklrun")}
	}
	args = append(slices.Clone(args), "--name", w.last, "--engine", engine, "--if", flag, "--sysctl", "net.ipv4.ping_group_range=0 2147483647")
	cmd := w.here.Command(append(append(append(args, w.more...), "--"), command...)...)
	cmd.ExtraFiles = w.files
	return cmd
}

// ends lets the program end and checks that nothing is left.
func (d *driven) ends() {
	d.T().Helper()
	if r := d.End(); r.Status != 0 {
		d.T().Errorf("the program: %v", r)
	}
	if _, err := os.Stat("/run/lklrun/" + d.Name); err == nil {
		d.T().Errorf("the run directory of %s is still there", d.Name)
	}
	for _, pid := range strings.Fields(kit.Host.Run(d.T(), "ip", "netns", "pids", d.here.Name)) {
		d.T().Errorf("process %s is left", pid)
	}
}

// T returns the test; both embedded parts of a driven have it.
func (d *driven) T() *testing.T { return d.wire.T }

// is makes the program evaluate an expression, whose value must be want.
func (d *driven) is(want, format string, args ...any) {
	d.T().Helper()
	if got := d.Say(format, args...); got != want {
		d.T().Errorf("%s: %s, want %s", fmt.Sprintf(format, args...), got, want)
	}
}

func newWire(t *testing.T) *wire {
	w := &wire{T: t, here: kit.NewNetns(t, "here"), far: kit.NewNetns(t, "far")}
	kit.Veth(t, w.here, "v0", w.far, "s0")
	// The addresses are on the bridge, so that they remain when s0 is set down.
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

// same checks that a run has not changed the namespace of lklrun.
func (w *wire) same(was string) {
	w.Helper()
	if now := w.state(); now != was {
		w.Errorf("lklrun's host was\n%s\nand is\n%s", was, now)
	}
}

// state returns everything that a run could change in the namespace of lklrun.
func (w *wire) state() string {
	w.Helper()
	var all []string
	// ip prints errors about namespaces of other tests that disappear while it runs.
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

// tcpSize is the amount of data in each direction of a connection. It is enough for
// windows and aggregates to grow.
const tcpSize = 4 << 20

// both compares the checksums of the two ends of a connection.
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
		d.both(d.Say("connect(%q, %d, %d)", a, port, tcpSize), far())
	}
}

// guestPort is the port of the stack's server.
const guestPort = 8080

func (d *driven) tcpIn() {
	for _, a := range d.guests {
		d.is("None", "listen(%d, %s)", guestPort, pyBool(strings.Contains(a, ":")))
		far := d.dialFar(a, guestPort, flow{size: tcpSize})
		d.both(d.Say("accept(%d)", tcpSize), far())
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
		for _, size := range []int{1, 1200, 8000} { // the last size is fragmented with an MTU of 1500
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

// path checks the MTU. A packet of exactly that size must arrive. A packet that is one
// byte larger must not leave unfragmented.
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
		if got := d.Say("ping(%q, %d)", a, mtu-head+1); !strings.Contains(got, "Message too long") {
			d.T().Errorf("a packet of %d bytes to %s: %s", mtu+1, a, got)
		}
	}
}

// trafficRate is in bytes per second and direction.
const trafficRate = 1 << 20

// traffic sends in both directions for a while. The wire is cut in the middle, and the
// connection must survive.
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
		case <-time.After(farLimit): // the traffic has failed; its end reports the reason
		}
		d.cut()
		time.Sleep(200 * time.Millisecond) // the length of the cut, in which packets are lost; not a wait
		d.mend()
	})
	ours := d.Say("connect(%q, %d, 0, %d, %d)", d.fars[0], port, trafficRate, seconds)
	cutting.Wait()
	d.both(ours, far())
}

// downUp sets the stack's device down and up again.
func (d *driven) downUp() {
	d.is("None", "link(False)")
	if got := d.Say("dial(%q, 9)", d.near); got != "ENETUNREACH" {
		d.T().Errorf("connecting while the device is down: %s", got)
	}
	d.is("None", "link(True)")
	d.is("answered", "ping(%q)", d.near)
}

// deleted removes the device during the run. lklrun must report it in one line, and the
// program must see the error.
func (d *driven) deleted() {
	if d.remove == nil {
		return
	}
	d.remove()
	ok := kit.Within(kit.Limit, func() bool { _, errs := d.Proc.Output(); return d.said != "" && strings.Contains(errs, d.said) })
	if _, errs := d.Proc.Output(); !ok || strings.Count(errs, d.said) != 1 {
		d.T().Errorf("want one line with %q: %s", d.said, errs)
	}
	if !kit.Within(kit.Limit, func() bool { return d.Say("dial(%q, 9)", d.near) == "ENETUNREACH" }) {
		d.T().Errorf("connecting without a device: %s", d.Say("dial(%q, 9)", d.near))
	}
}
