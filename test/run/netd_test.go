// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/netd_client.py
var netdClient string

// A netd is a stand-in for the socket of Android's netd that marks sockets. Like netd since
// Android 9, it accepts only Internet sockets, which it recognizes by SO_DOMAIN.
type netd struct {
	asked, refused atomic.Int32
}

// newNetd starts a netd at its place in /dev, which becomes private to the tests.
func newNetd(t *testing.T) *netd {
	t.Helper()
	ownDev(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "/dev/socket/fwmarkd", Net: "unix"})
	kit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	kit.Must(t, os.Chmod("/dev/socket/fwmarkd", 0o666))
	// A program that may ask netd for a name gets it from the stack's name server instead.
	names, err := net.ListenUnix("unix", &net.UnixAddr{Name: "/dev/socket/dnsproxyd", Net: "unix"})
	kit.Must(t, err, os.Chmod("/dev/socket/dnsproxyd", 0o666))
	t.Cleanup(func() { names.Close() })
	n := &netd{}
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			n.asked.Add(1)
			errno := mark(c)
			if errno != 0 {
				n.refused.Add(1)
			}
			_ = binary.Write(c, binary.NativeEndian, -int32(errno)) // the client may be gone
			c.Close()
		}
	}()
	return n
}

// mark receives a command with a socket and returns netd's verdict.
func mark(c *net.UnixConn) unix.Errno {
	command, rights := make([]byte, 64), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(command, rights)
	if err != nil {
		return unix.EINVAL
	}
	msgs, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(msgs) != 1 {
		return unix.EBADF
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return unix.EBADF
	}
	defer unix.Close(fds[0])
	family, err := unix.GetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || family != unix.AF_INET && family != unix.AF_INET6 {
		return unix.EAFNOSUPPORT
	}
	return 0
}

// ownDev gives the tests a private /dev with an empty folder socket.
func ownDev(t *testing.T) {
	t.Helper()
	dev := filepath.Join(kit.Dir(t), "dev")
	kit.Must(t, os.Mkdir(dev, 0o755), unix.Mount("tmpfs", dev, "tmpfs", 0, "mode=755"), os.Mkdir(dev+"/socket", 0o755))
	t.Cleanup(func() { kit.Must(t, unix.Unmount(dev, unix.MNT_DETACH)) })
	files, err := os.ReadDir("/dev")
	kit.Must(t, err)
	for _, f := range files {
		from, to := "/dev/"+f.Name(), filepath.Join(dev, f.Name())
		switch {
		case f.Type()&os.ModeSymlink != 0:
			link, err := os.Readlink(from)
			kit.Must(t, err, os.Symlink(link, to))
			continue
		case f.IsDir():
			kit.Must(t, os.Mkdir(to, 0o755))
		default:
			kit.Must(t, os.WriteFile(to, nil, 0o600))
		}
		kit.Must(t, unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""))
	}
	kit.Must(t, unix.Mount(dev, "/dev", "", unix.MS_BIND|unix.MS_REC, ""))
	t.Cleanup(func() { kit.Must(t, unix.Unmount("/dev", unix.MNT_DETACH)) })
}

// TestNetd checks that the calls of programs succeed whose C library passes each socket to
// netd, and that netd receives none of the stack's sockets.
func TestNetd(t *testing.T) {
	s := kit.NewSite(t)
	port := s.Server.EchoTCP(t, kit.ServerAddr+":0")
	bin := kit.PublicBin(t)
	n := newNetd(t)
	client := []string{"/usr/bin/python3", "-c", netdClient, kit.ServerAddr, strconv.Itoa(port)}
	want := "names: 2\nconnect: over the stack\naccept: on loopback\naccept: on loopback\n"
	t.Run("host", func(t *testing.T) {
		if r := kit.Run(t, kit.Limit, s.Server.Command(client...)); r.Status != 0 || r.Stdout != "names: 0"+strings.TrimPrefix(want, "names: 2") || n.asked.Load() != 5 || n.refused.Load() != 0 {
			t.Fatalf("the program without lklrun: %v; netd was asked %d times and refused %d sockets", r, n.asked.Load(), n.refused.Load())
		}
	})
	n.asked.Store(0)
	for _, engine := range []string{"supervise", "preload"} {
		args := append([]string{"--name", kit.NewName(), "-q", "--engine", engine, "--if", s.TapIf(), "--"}, client...)
		t.Run("root/"+engine, func(t *testing.T) {
			if r := kit.Run(t, kit.Limit, kit.Lklrun(args...)); r.Status != 0 || r.Stdout != want || r.Stderr != "" {
				t.Errorf("%v\nwant: %s", r, want)
			}
		})
		t.Run("user/"+engine, func(t *testing.T) {
			args := append([]string{"--name", kit.NewName(), "-q", "--engine", engine, "--if", "user", "--"}, client...)
			if r := kit.Run(t, kit.Limit, kit.AsUser(exec.Command(bin+"/lklrun", args...), "")); r.Status != 0 || r.Stdout != want || r.Stderr != "" {
				t.Errorf("%v\nwant: %s", r, want)
			}
		})
	}
	for _, engine := range []string{"supervise", "trace", "preload"} {
		t.Run("spellings/"+engine, func(t *testing.T) {
			args := []string{"--name", kit.NewName(), "-q", "--engine", engine, "--if", "user", "--", "/usr/bin/python3", "-c", netdSpellings}
			if r := kit.Run(t, kit.Limit, kit.AsUser(exec.Command(bin+"/lklrun", args...), "")); r.Status != 0 || r.Stdout != "16 names tried\n" {
				t.Errorf("%v", r)
			}
		})
	}
	if c := n.asked.Load(); c != 0 {
		t.Errorf("netd was asked %d times, want 0", c)
	}
}

// netdSpellings connects to netd's sockets by other spellings of their names (finding 9).
const netdSpellings = `
import os, socket
os.chdir("/dev/socket")
tried = 0
for name in "dnsproxyd", "fwmarkd":
    os.symlink("/dev/socket/" + name, f"/tmp/netd-{os.getpid()}")
    for path in "/dev//socket/", "/dev/./socket/", "/dev/socket/../socket/", "/proc/self/root/dev/socket/", "/proc/self/cwd/", "./", "":
        tried += 1
        if not socket.socket(socket.AF_UNIX).connect_ex(path + name):
            print("reached by", path + name)
    tried += 1
    if not socket.socket(socket.AF_UNIX).connect_ex(f"/tmp/netd-{os.getpid()}"):
        print("reached by a link to", name)
    os.unlink(f"/tmp/netd-{os.getpid()}")
print(tried, "names tried")
`
