// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Requests of FUSE, include/uapi/linux/fuse.h.
const (
	fuseLookup      = 1
	fuseForget      = 2
	fuseGetattr     = 3
	fuseOpen        = 14
	fuseRead        = 15
	fuseStatfs      = 17
	fuseRelease     = 18
	fuseFlush       = 25
	fuseInit        = 26
	fuseInterrupt   = 36
	fuseBatchForget = 42
)

const stalledStat = 5 // the inode of the file "attributes"

// A StallFS is a file system whose file "page" cannot be read until Release: a process
// that accesses a mapping of it waits. A stat of its file "attributes" waits, too. For
// programs in a run, the file "asked" exists once a process waits, and a lookup of
// "release" calls Release.
type StallFS struct {
	Dir string

	dev     int
	asked   atomic.Bool
	open    bool        // reads are answered
	waiting [][2]uint64 // pending reads: unique, size
}

// NewStallFS mounts a StallFS until the end of the test.
func NewStallFS(t testing.TB) *StallFS {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE: %v", err)
	}
	fs := &StallFS{Dir: Dir(t), dev: dev}
	opts := fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", dev)
	if err := unix.Mount("stall", fs.Dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		t.Fatalf("mounting: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fs.serve()
	}()
	t.Cleanup(func() {
		// Pending requests then get an error, and the server reaches the end of its
		// input.
		_ = unix.Unmount(fs.Dir, unix.MNT_FORCE|unix.MNT_DETACH)
		_ = unix.Close(dev)
		<-done
	})
	return fs
}

// Asked reports whether a process waits for the page.
func (fs *StallFS) Asked() bool { return fs.asked.Load() }

// serve answers requests until the file system is unmounted.
func (fs *StallFS) serve() {
	buf := make([]byte, 1<<17)
	for {
		p := []unix.PollFd{{Fd: int32(fs.dev), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, 100); err != nil && err != unix.EINTR {
			return
		}
		if p[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0 {
			return
		}
		if p[0].Revents&unix.POLLIN == 0 {
			continue
		}
		n, err := unix.Read(fs.dev, buf)
		switch {
		case err == unix.ENOENT || err == unix.EINTR || err == unix.EAGAIN:
			continue
		case err != nil || n < 40:
			return
		}
		fs.request(buf[:n])
	}
}

// request handles one request.
func (fs *StallFS) request(b []byte) {
	le := binary.LittleEndian
	unique, node, body := le.Uint64(b[8:]), le.Uint64(b[16:]), b[40:]
	switch le.Uint32(b[4:]) {
	case fuseInit:
		out := make([]byte, 64)
		le.PutUint32(out, 7)
		le.PutUint32(out[4:], 31)
		le.PutUint32(out[20:], 4096)
		fs.reply(unique, 0, out)
	case fuseLookup:
		fs.lookup(unique, strings.TrimRight(string(body), "\x00"))
	case fuseGetattr:
		if node == stalledStat && !fs.open {
			break // never answered
		}
		fs.reply(unique, 0, append(make([]byte, 16), attr(node)...))
	case fuseOpen:
		fs.reply(unique, 0, make([]byte, 16))
	case fuseRead:
		fs.waiting = append(fs.waiting, [2]uint64{unique, uint64(le.Uint32(body[16:]))})
		fs.asked.Store(true)
		fs.answer()
	case fuseStatfs:
		fs.reply(unique, 0, make([]byte, 80))
	case fuseRelease, fuseFlush:
		fs.reply(unique, 0, nil)
	case fuseForget, fuseInterrupt, fuseBatchForget: // they need no answer
	default:
		fs.reply(unique, unix.ENOSYS, nil)
	}
}

// lookup finds "page", and "asked" once a process waits; it handles "release".
func (fs *StallFS) lookup(unique uint64, name string) {
	ino := map[string]uint64{"page": 2, "asked": 3, "release": 4, "attributes": stalledStat}[name]
	if ino == 4 {
		fs.open = true
		fs.answer()
	}
	if ino == 0 || ino == 3 && !fs.Asked() {
		fs.reply(unique, unix.ENOENT, nil)
		return
	}
	out := make([]byte, 40)
	binary.LittleEndian.PutUint64(out, ino)
	fs.reply(unique, 0, append(out, attr(ino)...))
}

// answer sends pages that begin with the number 16 to the waiting processes.
func (fs *StallFS) answer() {
	for fs.open && len(fs.waiting) > 0 {
		w := fs.waiting[0]
		fs.waiting = fs.waiting[1:]
		out := make([]byte, w[1])
		for i := 0; i < len(out); i += 4096 {
			out[i] = 16
		}
		fs.reply(w[0], 0, out)
	}
}

// attr is struct fuse_attr of the root, 1, or a file.
func attr(ino uint64) []byte {
	le, out := binary.LittleEndian, make([]byte, 88)
	mode := uint32(unix.S_IFREG | 0o644)
	if ino == 1 {
		mode = unix.S_IFDIR | 0o755
	}
	le.PutUint64(out, ino)
	le.PutUint64(out[8:], 1<<16)
	le.PutUint32(out[60:], mode)
	le.PutUint32(out[64:], 1)
	return out
}

// reply sends an answer; the process may have ended.
func (fs *StallFS) reply(unique uint64, errno unix.Errno, body []byte) {
	le, out := binary.LittleEndian, make([]byte, 16, 16+len(body))
	le.PutUint32(out, uint32(16+len(body)))
	le.PutUint32(out[4:], uint32(-int32(errno)))
	le.PutUint64(out[8:], unique)
	_, _ = unix.Write(fs.dev, append(out, body...))
}
