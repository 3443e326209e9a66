// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// TestCommands runs the commands of each page in order, as an ordinary user. Each page
// has its own folder. SERVER, 192.0.2.1 and the other addresses of the pages belong to a
// peer.
func TestCommands(t *testing.T) {
	kit.Need(t, "ip", "nginx", "mptcpize", "iperf3", "dnsmasq", "rsync", "curl", "wget", "jq", "nc", "tshark", "tcpdump", "redis-server", "redis-cli", "/usr/sbin/bird", "/usr/sbin/named", "/usr/sbin/tayga", "/usr/sbin/nft", "setpriv", "pytest-3", kit.Bin("lklrun"), kit.Bin("lklctl"))
	pages := []string{"README.md"}
	for _, folder := range []string{"tutorials", "how-to"} {
		found, err := filepath.Glob(filepath.Join(kit.Root(), "docs", folder, "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			pages = append(pages, filepath.Join("docs", folder, filepath.Base(f)))
		}
	}
	bin := kit.PublicBin(t)
	kit.Must(t,
		os.Rename(copySudo(t), filepath.Join(bin, "sudo")),
		os.WriteFile("/run/resolv.conf", []byte("nameserver "+serverAddr+"\n"), 0o644),
		unix.Mount("/run/resolv.conf", "/etc/resolv.conf", "", unix.MS_BIND, ""))
	t.Cleanup(func() { kit.Must(t, unix.Unmount("/etc/resolv.conf", 0)) })
	t.Run("page", func(t *testing.T) { // ends after its parallel subtests
		for _, page := range pages {
			t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
				t.Parallel()
				commands, errs := parsePage(page, kit.ReadFile(t, filepath.Join(kit.Root(), page)))
				for _, e := range errs {
					t.Error(e)
				}
				runPage(t, page, bin, commands)
			})
		}
	})
}

// copySudo makes a set-user-ID copy of the test's replacement for sudo, and returns its
// path.
func copySudo(t *testing.T) string {
	path := filepath.Join(kit.Dir(t), "sudo")
	kit.Host.Run(t, "cp", kit.Program("sudo"), path)
	kit.Must(t, os.Chmod(path, 0o755|os.ModeSetuid))
	return path
}

func runPage(t *testing.T, page, bin string, commands []command) {
	var s *session
	ran := 0
	for _, c := range commands {
		if c.Skip != "" {
			t.Logf("%s:%d: not run: %s: `%s`", page, c.Line, c.Skip, c.Text)
			continue
		}
		if s == nil {
			s = newSession(t, bin, newHost(t))
		}
		ran++
		began := time.Now()
		status, output, err := s.run(c)
		took := time.Since(began).Round(time.Millisecond)
		switch {
		case err != nil:
			t.Errorf("%s:%d: `%s`: %v, after %v:\n%s", page, c.Line, c.Text, err, took, output)
		case status != c.Status && (c.Ctrl == 0 || status != 128+int(unix.SIGINT) && status != pythonInterrupted):
			t.Errorf("%s:%d: `%s`: status %d, after %v:\n%s", page, c.Line, c.Text, status, took, output)
		default:
			t.Logf("%s:%d: `%s`: %v", page, c.Line, c.Text, took)
		}
		if s.ended {
			t.Fatalf("%s:%d: `%s`: ended the shell", page, c.Line, c.Text)
		}
	}
	t.Logf("%s: %d of %d commands run", page, ran, len(commands))
}

// Addresses of the pages.
const serverAddr = "192.0.2.1"

// newHost makes the host of a page, with the devices that the pages mention:
//
//	eth0  192.0.2.100 ──── SERVER 192.0.2.1, 192.0.2.7, 192.0.2.9; the default route
//	wlan0 198.51.100.2 ─── SERVER 198.51.100.1, with a DHCP server
//	wwan0 203.0.113.2 ──── SERVER 203.0.113.1; a device without Ethernet
//	br0   10.0.1.3 ─────── SERVER 10.0.1.1, to which a tap can be attached
//	br1   10.0.2.3 ─────── SERVER 10.0.2.1, as br0
func newHost(t *testing.T) *kit.Netns {
	host, server := kit.NewNetns(t, "desk"), kit.NewNetns(t, "server")
	server.Run(t, "sysctl", "-qw", "net.mptcp.enabled=1")
	server.Run(t, "ip", "mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "8")

	kit.Veth(t, host, "eth0", server, "s0")
	host.Addr(t, "eth0", "192.0.2.100/24")
	server.Addr(t, "s0", serverAddr+"/24", "192.0.2.7/24", "192.0.2.9/24")
	host.Run(t, "ip", "route", "add", "default", "via", serverAddr)

	kit.Veth(t, host, "wlan0", server, "s1")
	host.Addr(t, "wlan0", "198.51.100.2/24")
	server.Addr(t, "s1", "198.51.100.1/24")
	server.DnsmasqDHCP(t, "s1", "--interface=s0",
		"--dhcp-range=192.0.2.150,192.0.2.200,255.255.255.0,600", "--dhcp-range=198.51.100.100,198.51.100.200,255.255.255.0,600")

	for n := range 2 {
		bridge, wire, peer := fmt.Sprint("br", n), fmt.Sprint("lan", n), fmt.Sprint("s", n+3)
		kit.Veth(t, host, wire, server, peer)
		host.Bridge(t, bridge, wire)
		host.Addr(t, bridge, fmt.Sprintf("10.0.%d.3/24", n+1))
		server.Addr(t, peer, fmt.Sprintf("10.0.%d.1/24", n+1))
	}

	flags := uint16(unix.IFF_TUN | unix.IFF_NO_PI)
	near, far := kit.OpenTun(t, host, "wwan0", flags), kit.OpenTun(t, server, "s2", flags)
	host.Run(t, "ip", "link", "set", "wwan0", "up")
	server.Run(t, "ip", "link", "set", "s2", "up")
	host.Addr(t, "wwan0", "203.0.113.2/24")
	server.Addr(t, "s2", "203.0.113.1/24")
	t.Cleanup(kit.CarryFrames(near, far))

	// The stack `host` uses the host kernel's own MPTCP.
	host.Run(t, "sysctl", "-qw", "net.mptcp.enabled=1")

	web := kit.Dir(t)
	kit.Random(t, filepath.Join(web, "file"), 1<<20)
	kit.WriteFile(t, filepath.Join(web, "index.html"), "hello\n")
	server.Nginx(t, kit.Nginx{Root: web, MPTCP: true})
	server.Iperf3(t)
	server.EchoTCP(t, ":443")
	server.Dnsmasq(t, map[string]string{"SERVER": serverAddr, "example.com": serverAddr})
	conf := kit.WriteFile(t, filepath.Join(web, "rsyncd.conf"), fmt.Sprintf("use chroot = no\npid file = %[1]s/rsyncd.pid\n[srv]\npath = %[1]s\n[in]\npath = %[2]s\nread only = no\nuid = root\n", web, kit.Dir(t)))
	kit.Start(t, server.Command("rsync", "--daemon", "--no-detach", "--config="+conf))
	return host
}

// The limits for a command, and for its end after Ctrl-C.
const commandLimit, interruptLimit = time.Minute, 10 * time.Second

// A session is a shell in which the commands of a page run one after another.
type session struct {
	t        *testing.T
	shell    *kit.Proc
	commands *os.File      // the shell's script
	statuses *bufio.Reader // an exit status and a zero byte each
	output   string        // the file that receives the commands' output
	ended    bool          // the shell has ended
}

// programs are the reader's own programs, which the pages call ./NAME.
var programs = map[string]string{
	"fetch":  "exec curl -s -o /dev/null http://SERVER/file\n",
	"server": "exec python3 -c '" + server + "'\n",
}

// With the handler of Python, Ctrl-C can interrupt the flush at exit, whose failure
// ends Python with this status.
const pythonInterrupted = 120

const server = `
import http.server, signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
http.server.test(http.server.SimpleHTTPRequestHandler, http.server.ThreadingHTTPServer, port=8080)
`

// Each page has its own folders, because an instance is found without its name if it is
// the only one of a page. Each command is a separate job, so that the test can interrupt
// it as Ctrl-C does.
const (
	furnish = `
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /srv
mount -t tmpfs -o mode=700 tmpfs /root
for extcap in /usr/lib/*/wireshark/extcap; do
	[ ! -d "$extcap" ] || mount -t tmpfs -o mode=755 tmpfs "$extcap"
done
mkdir -p "$XDG_RUNTIME_DIR"
chown $uid:$uid "$XDG_RUNTIME_DIR"
exec setpriv --reuid $uid --regid $uid --clear-groups --inh-caps=-all bash --noprofile --norc /dev/fd/3`

	// The shell reads its script while the test writes it. Without job control, the shell
	// would end if SIGINT ends a command in the foreground.
	first = "set -m\n"
	next  = "{ %s\n} 3<&- 4>&-; printf '%%d\\0' $? >&4\n"
	ctrl  = "{ %s\n} 3<&- 4>&- & wait $!; printf '%%d\\0' $? >&4\n"
)

func newSession(t *testing.T, bin string, host *kit.Netns) *session {
	t.Helper()
	home := kit.Dir(t)
	output, err := os.Create(filepath.Join(kit.Dir(t), "output"))
	kit.Must(t, err, os.Chown(home, kit.OrdinaryUID, kit.OrdinaryUID))
	defer output.Close()
	commandsOut, commandsIn, err := os.Pipe()
	kit.Must(t, err, commandsOut.Chown(kit.OrdinaryUID, kit.OrdinaryUID)) // bash opens it
	defer commandsOut.Close()
	statusesOut, statusesIn, err := os.Pipe()
	kit.Must(t, err)
	defer statusesIn.Close()
	t.Cleanup(func() {
		commandsIn.Close()
		statusesOut.Close()
	})
	for name, script := range programs {
		kit.Must(t, os.Chmod(kit.WriteFile(t, filepath.Join(home, name), "#!/bin/sh\n"+script), 0o755))
	}
	cmd := host.Command("sh", "-c", furnish)
	cmd.Dir = home
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{commandsOut, statusesIn}
	cmd.Env = []string{
		"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + home, "LANG=C.UTF-8",
		fmt.Sprint("uid=", kit.OrdinaryUID), fmt.Sprint("XDG_RUNTIME_DIR=/run/user/", kit.OrdinaryUID),
	}
	_, err = commandsIn.WriteString(first)
	kit.Must(t, err)
	return &session{t: t, shell: kit.Start(t, cmd), commands: commandsIn, statuses: bufio.NewReader(statusesOut), output: output.Name()}
}

// run runs a command and returns its exit status and output.
func (s *session) run(c command) (status int, output string, err error) {
	before := s.jobs()
	at := s.outputSize()
	line := next
	if c.Ctrl != 0 {
		line = ctrl
	}
	if _, err := fmt.Fprintf(s.commands, line, c.Text); err != nil {
		s.t.Fatalf("the shell: %v", err)
	}
	done := make(chan string, 1)
	go func() {
		text, _ := s.statuses.ReadString(0) // empty at the end of the file
		done <- text
	}()
	limit := c.Ctrl
	if limit == 0 {
		limit = commandLimit
	}
	var text string
	select {
	case text = <-done:
		if c.Ctrl != 0 {
			err = fmt.Errorf("ended before Ctrl-C")
		}
	case <-time.After(limit):
		s.signal(before, unix.SIGINT)
		if c.Ctrl == 0 {
			err = fmt.Errorf("still running")
		}
		select {
		case text = <-done:
		case <-time.After(interruptLimit):
			err = fmt.Errorf("still running after SIGINT")
			s.signal(before, unix.SIGKILL)
			s.shell.Signal(unix.SIGKILL) // it may wait for another job
			text = <-done
		}
	}
	all, _ := os.ReadFile(s.output)
	output = string(all[at:])
	if text == "" {
		s.ended = true
		return 0, output, err
	}
	status, _ = strconv.Atoi(strings.TrimSuffix(text, "\x00"))
	return status, output, err
}

func (s *session) outputSize() int64 {
	info, err := os.Stat(s.output)
	kit.Must(s.t, err)
	return info.Size()
}

// jobs returns the process groups of the shell's children.
func (s *session) jobs() map[int]bool {
	groups := map[int]bool{}
	out, _ := exec.Command("ps", "-o", "pgid=", "--ppid", strconv.Itoa(s.shell.Pid())).Output() // none: status 1
	for _, f := range strings.Fields(string(out)) {
		if g, err := strconv.Atoi(f); err == nil {
			groups[g] = true
		}
	}
	return groups
}

// signal sends a signal to the jobs that were not there before.
func (s *session) signal(before map[int]bool, sig unix.Signal) {
	for g := range s.jobs() {
		if !before[g] {
			_ = unix.Kill(-g, sig) // the job may have just ended
		}
	}
}
