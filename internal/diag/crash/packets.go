// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// packetsLimit bounds the query, so that a report is created even if lklrun does not
// answer.
const packetsLimit = 10 * time.Second

// PacketsFile is the file in the report that contains the last packets.
const PacketsFile = "packets.pcapng"

// KeptFile is not part of a report. It contains the rpc.PacketsKept of a run on another
// machine, as JSON.
const KeptFile = "packets.json"

// AddPackets adds the packets in the ring of `lklrun --capture ring` without redaction,
// and lists the other capture files.
func (b *Report) AddPackets(kept rpc.PacketsKept, pcapng []byte) {
	b.files = kept.Files
	if kept.Ring {
		b.parts = append(b.parts, part{PacketsFile, fmt.Sprintf("the last %d packets; their payload is not redacted", kept.Packets), pcapng})
	}
}

// AskPackets asks the run's lklrun for its packets and adds them.
func (b *Report) AskPackets(ctx context.Context, c *stackconn.Conn) {
	ctx, cancel := context.WithTimeoutCause(ctx, packetsLimit, fmt.Errorf("lklrun did not answer within %v", packetsLimit))
	defer cancel()
	kept, pcapng, err := Packets(ctx, c)
	if err != nil {
		b.NoteMissing(PacketsFile, err)
		return
	}
	b.AddPackets(kept, pcapng)
}

// Packets asks the run's lklrun for the packets that it has kept.
func Packets(ctx context.Context, c *stackconn.Conn) (kept rpc.PacketsKept, pcapng []byte, err error) {
	fd, err := unix.MemfdCreate(PacketsFile, unix.MFD_CLOEXEC)
	if err != nil {
		return kept, nil, fmt.Errorf("memfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), PacketsFile)
	defer file.Close()
	if kept, err = rpc.Do(ctx, c, rpc.Packets, struct{}{}, file); err != nil {
		return kept, nil, err
	}
	if _, err = file.Seek(0, io.SeekStart); err != nil {
		return kept, nil, err
	}
	pcapng, err = io.ReadAll(file)
	return kept, pcapng, err
}
