// SPDX-License-Identifier: Apache-2.0

package kit

import (
	_ "embed"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// SSHD configures the server of NewSSHD.
type SSHD struct {
	Net     *Netns // its namespace; nil: that of the tests
	Address string // address of the server for the client; "": 127.0.0.1
	Port    int    // 0: 22
	Home    string // mount options of a tmpfs on /home, such as "size=1m" or "noexec"; "": unlimited
	Shell   string // of the accounts; "": /bin/sh
}

// An SSHServer is a machine that accepts logins over ssh: OpenSSH's server, with its own
// keys, in its own process and mount namespaces. It has its own accounts and its own
// empty /home, /run, /tmp and /dev/shm, and all its processes end with it. The rest of
// the file system is the machine's, so the installed programs and those built in this
// repository can be run there.
type SSHServer struct {
	*Proc
	Net    *Netns
	Addr   string // host:port
	Client *SSHClient
}

// Accounts of an SSHServer: both accept the client's key.
const (
	SSHRoot = "root" // home /home/root
	SSHUser = "user" // OrdinaryUID, home /home/user
)

//go:embed testdata/sshd.sh
var sshdStart string

// NewSSHD starts the server, and makes a client that knows it. Both end with the test.
func NewSSHD(t testing.TB, c SSHD) *SSHServer {
	t.Helper()
	Need(t, "/usr/sbin/sshd", "ssh", "ssh-keygen", "mount")
	if c.Net == nil {
		c.Net = Host
	}
	if c.Address == "" {
		c.Address = "127.0.0.1"
	}
	if c.Port == 0 {
		c.Port = 22
	}
	if c.Home == "" {
		c.Home = "size=1g"
	}
	if c.Shell == "" {
		c.Shell = "/bin/sh"
	}
	s := &SSHServer{Net: c.Net, Addr: net.JoinHostPort(c.Address, fmt.Sprint(c.Port)), Client: NewSSHClient(t)}
	dir := Dir(t)
	SSHKey(t, filepath.Join(dir, "host"))
	s.Client.Know(t, c.Address, c.Port, filepath.Join(dir, "host.pub"))
	files := map[string]string{
		"config": "ListenAddress " + s.Addr + `
HostKey /run/sshd-test/host
AuthorizedKeysFile /run/sshd-test/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
PidFile none
`,
		"authorized_keys": s.Client.Public(t),
		"passwd": fmt.Sprintf("root:x:0:0::/home/root:%[2]s\nuser:x:%[1]d:%[1]d::/home/user:%[2]s\n"+
			"sshd:x:65533:65533::/run/sshd:/usr/sbin/nologin\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n", OrdinaryUID, c.Shell),
		"shadow": "root:*:1::::::\nuser:*:1::::::\nsshd:*:1::::::\n",
	}
	for name, text := range files {
		WriteFile(t, filepath.Join(dir, name), text)
	}
	cmd := c.Net.Command("sh", "-euc", sshdStart, "sshd", dir, c.Home, fmt.Sprint(OrdinaryUID), Root())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC}
	s.Proc = Start(t, cmd)
	WaitFor(t, "the ssh server on "+s.Addr, 20*time.Second, func() bool {
		if !s.Running() {
			t.Fatalf("sshd: %v", s.Wait(time.Second))
		}
		return s.Net.Enter(func() error {
			conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
			if err == nil {
				_ = conn.Close() // nothing was sent
			}
			return err
		}) == nil
	})
	return s
}

// Target is the server in the form of --device: ssh:USER@HOST:PORT.
func (s *SSHServer) Target(user string) string { return "ssh:" + user + "@" + s.Addr }

// Path is the path by which the test reaches a path of the server.
func (s *SSHServer) Path(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", s.Pid()), path)
}
