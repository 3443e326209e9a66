// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
)

// kept writes a ring as a file, and returns the numbers of the packets in the file.
func kept(t *testing.T, r *Ring) (ids []int, interfaces int) {
	t.Helper()
	var file bytes.Buffer
	n, err := r.Write(context.Background(), &file, "a test")
	if err != nil {
		t.Fatal(err)
	}
	f, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, _, err := f.ReadPacketData()
		if err != nil {
			break
		}
		ids = append(ids, int(data[0])<<8|int(data[1]))
	}
	if n != len(ids) {
		t.Errorf("%d packets written, %d read", n, len(ids))
	}
	return ids, f.NInterfaces()
}

// A ring contains all interfaces, and as many of the last packets as fit, in order.
// The size of the batches does not matter.
func TestRing(t *testing.T) {
	const snap = 100
	for _, batch := range []int{1, 3, 10, 64} {
		r := NewRing(10 * (snap + packetCost))
		for n := range 2 {
			m := &Member{Interface: Interface{Name: "eth0", LinkType: LinkTypeEthernet, Snaplen: snap}, Number: n, closed: true}
			if err := r.Interface(m); err != nil {
				t.Fatal(err)
			}
		}
		if ids, interfaces := kept(t, r); len(ids) != 0 || interfaces != 2 {
			t.Errorf("an empty ring has %d, of %d interfaces", ids, interfaces)
		}
		const count = 640
		for id := 0; id < count; {
			var some []Packet
			for range batch {
				some = append(some, Packet{Time: time.Unix(int64(id), 0), Interface: id % 2, Length: 1500, Data: append([]byte{byte(id >> 8), byte(id)}, make([]byte, snap-2)...)})
				id++
			}
			if err := r.Packets(some); err != nil {
				t.Fatal(err)
			}
			if r.bytes > r.size {
				t.Fatalf("%d bytes in a ring of %d", r.bytes, r.size)
			}
		}
		ids, interfaces := kept(t, r)
		if len(ids) != 10 || interfaces != 2 {
			t.Fatalf("batches of %d: %d kept, of %d interfaces", batch, ids, interfaces)
		}
		for i, id := range ids {
			if last := (count + batch - 1) / batch * batch; id != last-10+i {
				t.Errorf("batches of %d: %d", batch, ids)
				break
			}
		}
		if c := cap(r.batches); c > 64 {
			t.Errorf("batches of %d: room for %d of them", batch, c)
		}
	}
	// A packet larger than the ring also removes all other packets.
	r := NewRing(100)
	if err := r.Packets([]Packet{{Data: make([]byte, 200)}}); err != nil || len(r.batches) != 0 || r.bytes != 0 {
		t.Errorf("%v, %d batches, %d bytes", err, len(r.batches), r.bytes)
	}
}

// refusing is a handler that always returns an error and counts its calls.
type refusing struct{ asked int }

var errNo = errors.New("no")

func (r *refusing) Interface(*Member) error { r.asked++; return errNo }
func (r *refusing) Packets([]Packet) error  { r.asked++; return errNo }

// After its first error, a handler is not called again.
func TestHeeded(t *testing.T) {
	r := &refusing{}
	h := &heeded{Handler: r}
	if err := h.Packets(nil); !errors.Is(err, errNo) {
		t.Error(err)
	}
	if err := errors.Join(h.Packets(nil), h.Interface(nil)); err != nil || r.asked != 1 {
		t.Errorf("%v, asked %d times", err, r.asked)
	}
}
