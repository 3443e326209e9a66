// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/test/kit"
)

// TestOrphan checks that an end may join while its ancestors end, as `lklrun --detach`
// ends once the run is up.
func TestOrphan(t *testing.T) {
	const ancestors = 50
	// Each shell prints its PID and starts the next one. The last process connects.
	const chain = `echo $$; [ $1 = 0 ] && exec /usr/bin/python3 -c "$2" "$3"; sh -c "$0" "$0" $(($1 - 1)) "$2" "$3"; :`
	const connect = `import signal, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
signal.pause()`
	dir := t.TempDir()
	f, err := listen(dir, "end")
	kit.Must(t, err)
	l, err := net.FileListener(f)
	kit.Must(t, err, f.Close())
	defer l.Close()
	kit.Must(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	defer func() { kit.Must(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)) }()
	cmd := exec.Command("sh", "-c", chain, chain, fmt.Sprint(ancestors), connect, filepath.Join(dir, "end"))
	out, err := cmd.StdoutPipe()
	kit.Must(t, err, cmd.Start())
	c, err := l.Accept()
	kit.Must(t, err)
	defer c.Close()
	accepted, err := bootTicks()
	kit.Must(t, err)
	var pids [ancestors + 1]int
	for n := range pids {
		_, err := fmt.Fscan(out, &pids[n])
		kit.Must(t, err)
	}
	end := func(pids ...int) (err error) {
		for _, pid := range pids {
			err = errors.Join(err, unix.Kill(pid, unix.SIGKILL))
			_, failed := unix.Wait4(pid, nil, 0, nil)
			err = errors.Join(err, failed)
		}
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- end(pids[:ancestors]...) }()
	for over := false; !over; {
		select {
		case err := <-ended:
			kit.Must(t, err, allowed(c.(*net.UnixConn), accepted), end(pids[ancestors]))
			over = true
		default:
			if err := allowed(c.(*net.UnixConn), accepted); err != nil {
				t.Errorf("its ancestors end: %v", err)
			}
		}
	}
}

// TestTakenNumber checks that an end may not join under the number of another process, which
// has taken it from the process that connected. This is checked without SO_PEERPIDFD, too.
func TestTakenNumber(t *testing.T) {
	if unix.Geteuid() != 0 { // only root chooses the number of a process
		return
	}
	const swap = `import ctypes, os, signal, socket, struct, sys
ends, end = os.pipe()
pid = os.fork()
if pid == 0:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(sys.argv[1])
    os.read(ends, 1)
    os._exit(0)
sys.stdin.readline()
os.write(end, b"x")
os.waitpid(pid, 0)
number = ctypes.c_int(pid)
args = struct.pack("8Q", 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0) + struct.pack("2Q", ctypes.addressof(number), 1)
if ctypes.CDLL(None).syscall(435, args, len(args)) == 0:
    signal.pause()
print(pid, flush=True)
sys.stdin.readline()
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)`
	option := peerPidfd
	defer func() { peerPidfd = option }()
	for _, peerPidfd = range []int{option, unix.SO_PEERCRED + 0x7000} {
		dir := t.TempDir()
		f, err := listen(dir, "end")
		kit.Must(t, err)
		l, err := net.FileListener(f)
		kit.Must(t, err, f.Close())
		defer l.Close()
		cmd := exec.Command("/usr/bin/python3", "-c", swap, filepath.Join(dir, "end"))
		in, err := cmd.StdinPipe()
		kit.Must(t, err)
		out, err := cmd.StdoutPipe()
		kit.Must(t, err, cmd.Start())
		c, err := l.Accept()
		kit.Must(t, err)
		accepted, err := bootTicks()
		_, failed := io.WriteString(in, "\n")
		kit.Must(t, err, failed)
		var taken int32
		_, err = fmt.Fscan(out, &taken)
		kit.Must(t, err)
		if cred, err := stackconn.Peer(c.(*net.UnixConn)); err != nil || cred.Pid != taken {
			t.Fatalf("the process is %v, want %d: %v", cred, taken, err)
		}
		if err := allowed(c.(*net.UnixConn), accepted); err == nil {
			t.Errorf("option %#x: it joined as process %d", peerPidfd, taken)
		}
		kit.Must(t, in.Close(), cmd.Wait(), c.Close())
	}
}
