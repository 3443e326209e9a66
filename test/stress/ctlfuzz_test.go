// SPDX-License-Identifier: Apache-2.0

package stress

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/test/kit"
)

// A babbler is a client that sends random data to a control socket.
type babbler struct {
	kit.Noise
	path string
	sent int
}

// number returns a number that is mostly small, sometimes an edge case, and sometimes
// arbitrary.
func (b *babbler) number() uint64 {
	edges := []uint64{1 << 31, 1<<31 - 1, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1<<64 - 1, ctlproto.CTL_FRAME_MAX, 1 << 12, 1 << 16}
	switch b.IntN(4) {
	case 0:
		return edges[b.IntN(len(edges))]
	case 1:
		return b.Uint64()
	}
	return b.Uint64N(40)
}

// syscall returns a call in the stack with random buffers. It never mounts or unmounts
// file systems, because the stack must stay usable.
func (b *babbler) syscall() []byte {
	nr := b.Uint32N(460)
	if nr == unix.SYS_MOUNT || nr == unix.SYS_UMOUNT2 {
		nr = unix.SYS_GETSOCKOPT
	}
	le := binary.LittleEndian
	p := le.AppendUint32(nil, nr)
	n := b.Uint32N(5)
	if b.IntN(30) == 0 {
		n = uint32(b.number())
	}
	p = le.AppendUint32(p, n)
	p = le.AppendUint32(p, b.Uint32N(300)) // milliseconds
	p = le.AppendUint32(p, b.Uint32N(64))
	for range 6 {
		v := b.number()
		if os.Getenv("LKLRUN_BIN") != "" {
			v &= 0xfff // the sanitizers report a pointer to unmapped memory as an error of lklhost
		}
		p = le.AppendUint64(p, v)
	}
	var data []byte
	for i := range min(n, 20) {
		size := b.Uint32N(200)
		if b.IntN(10) == 0 {
			size = uint32(b.number())
		}
		flags := 1 + byte(b.IntN(3))
		place := byte(b.IntN(7))
		if i > 0 && b.IntN(3) == 0 {
			flags, place = flags|4, byte(b.IntN(int(i)))
		}
		p = append(p, place, flags, byte(8*b.IntN(4)), 0)
		p = le.AppendUint32(p, size)
		if flags&1 != 0 && size < 1<<16 {
			data = append(data, b.Bytes(int(size))...)
		}
	}
	return append(p, data...)
}

// body returns a body that fits its type, or almost fits it.
func (b *babbler) body(typ uint16) []byte {
	sizes := map[uint16]int{
		ctlproto.CTL_HELLO: 8, ctlproto.CTL_LINK_ADD: 16, ctlproto.CTL_LINK_DEL: 4, ctlproto.CTL_BOOT: 16, ctlproto.CTL_GO: 16,
		ctlproto.CTL_CANCEL: 4, ctlproto.CTL_EVENTS: 4, ctlproto.CTL_EXEC: 16, ctlproto.CTL_EXEC_SIGNAL: 16,
		ctlproto.CTL_ASK: 40, ctlproto.CTL_ANSWER: 40,
	}
	if typ == ctlproto.CTL_SYSCALL {
		return b.syscall()
	}
	n := sizes[typ]
	if b.IntN(8) == 0 {
		n = b.IntN(200)
	}
	p := b.Bytes(n)
	if typ == ctlproto.CTL_EVENTS && n == 4 {
		p[1], p[2], p[3] = 0, 0, 0
	}
	if typ == ctlproto.CTL_ASK && n > 8 && b.IntN(4) > 0 { // a query that lklhost passes to lklrun
		copy(p, []byte{0, 0, 0, 0, byte(b.IntN(2)), 0, 0, 0})
		copy(p[8:], `{"verb":"end"}`)
	}
	return p
}

// talk makes one connection. Usually it sends a greeting, then frames, and ends at a
// random point.
func (b *babbler) talk() error {
	c, err := net.Dial("unix", b.path)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(kit.Limit)); err != nil {
		return err
	}
	go func() { // some clients read the answers
		if b.sent%4 == 0 {
			return
		}
		buf := make([]byte, 1<<16)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
		}
	}()
	if b.IntN(10) > 0 {
		m := ctlproto.HelloRequest{Magic: ctlproto.CTL_MAGIC, Version: 1}
		if _, err := c.Write(b.Frame(ctlproto.CTL_HELLO, m.Append(nil))); err != nil {
			return nil // lklhost may end the connection at any time
		}
	}
	for range b.IntN(60) {
		typ := uint16(b.IntN(24))
		if b.IntN(2) == 0 {
			typ = ctlproto.CTL_SYSCALL
		}
		if typ == ctlproto.CTL_STOP { // a valid stop would end the instance
			typ = 0x8000 | uint16(b.Uint32())
		}
		p := b.Frame(typ, b.body(typ))
		switch b.IntN(40) {
		case 0:
			p = p[:b.IntN(len(p))]
		case 1:
			p = append(p, b.Bytes(b.IntN(50))...)
		case 2:
			binary.LittleEndian.PutUint32(p, uint32(b.number()))
		}
		b.sent++
		if b.IntN(8) == 0 {
			err = b.withFiles(c.(*net.UnixConn), p)
		} else {
			_, err = c.Write(p)
		}
		if err != nil {
			return nil
		}
	}
	return nil
}

// withFiles also sends descriptors: those for a link, or arbitrary ones.
func (b *babbler) withFiles(c *net.UnixConn, p []byte) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		return err
	}
	defer null.Close()
	fds := []int{pair[0], int(null.Fd()), pair[1]}[:1+b.IntN(3)]
	_, _, err = c.WriteMsgUnix(p, unix.UnixRights(fds...), nil)
	return errors.Join(err, unix.Close(pair[0]), unix.Close(pair[1]))
}

// TestControlNonsense checks that a control client that sends nonsense is answered or
// dropped. lklhost must serve other clients as before, and must free all resources of
// this client.
func TestControlNonsense(t *testing.T) {
	h := newHunt(t, false, "--stack", "mptcp")
	h.works()
	seed := uint64(kit.Setting(t, "FUZZ_SEED", 1))
	t.Logf("seed %d", seed)
	t.Cleanup(func() { // print the last messages, in case lklhost has died
		if log, err := os.ReadFile(filepath.Join("/run/lklrun", h.name, "log")); t.Failed() && err == nil {
			t.Logf("the log ends: %s", log[max(0, len(log)-4000):])
		}
		_, said := h.run.Output()
		t.Logf("lklrun: %s", said)
	})
	b := &babbler{Noise: kit.Noise{Rand: rand.New(rand.NewPCG(seed, 0))}, path: filepath.Join("/run/lklrun", h.name, "ctl.sock")}
	before := h.settled()
	end := time.Now().Add(time.Duration(kit.Setting(t, "FUZZ_SECONDS", 4)) * time.Second)
	for conns := 0; ; conns++ {
		if err := b.talk(); err != nil {
			t.Fatalf("connection %d: %v", conns, err)
		}
		if time.Now().After(end) {
			t.Logf("%d connections, %d frames", conns, b.sent)
			break
		}
		if conns%50 == 0 {
			h.health() // another client connects in between
		}
	}
	before.files += 3 * 64 // links that were added remain
	before.sockets += 64
	t.Logf("before: %v\nafter:  %v", before, h.recovers(before, kit.Limit))
	h.works()
	h.end()
}
