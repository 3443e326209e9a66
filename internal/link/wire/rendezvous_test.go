// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

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
			kit.Must(t, err, allowed(c.(*net.UnixConn)), end(pids[ancestors]))
			over = true
		default:
			if err := allowed(c.(*net.UnixConn)); err != nil {
				t.Errorf("its ancestors end: %v", err)
			}
		}
	}
}
