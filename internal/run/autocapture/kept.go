// SPDX-License-Identifier: Apache-2.0

package autocapture

import (
	"bytes"
	"context"
	"os"
	"time"

	"github.com/lklrun/lklrun/internal/diag/crash"
	"github.com/lklrun/lklrun/internal/diag/rpc"
)

// ringLimit bounds the wait for the last packets of a kernel that has panicked.
const ringLimit = 2 * time.Second

// ringApplication is the application name in a file with a ring's packets.
const ringApplication = "lklrun --capture ring"

// Ask answers rpc.Packets. It writes the packets of the ring to the file that was passed
// with the question.
func (r *Recorder) Ask(ctx context.Context, _ struct{}, file *os.File) (kept rpc.PacketsKept, err error) {
	for _, rec := range r.all {
		if rec.file != nil {
			kept.Files = append(kept.Files, rec.file.path)
			continue
		}
		kept.Ring = true
		if file == nil {
			return kept, rpc.Usagef("packets: the request has no file")
		}
		// A write to a pipe could block on its reader and delay the end
		// of the run.
		if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
			return kept, rpc.Usagef("packets: the file of the request is not a regular file")
		}
		if kept.Packets, err = rec.ring.Write(ctx, file, ringApplication); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

// AddPackets adds the last packets before a panic to the report, and the paths of the other
// capture files.
func (r *Recorder) AddPackets(ctx context.Context, b *crash.Report) {
	var kept rpc.PacketsKept
	var text bytes.Buffer
	for _, rec := range r.all {
		if rec.file != nil {
			kept.Files = append(kept.Files, rec.file.path)
			continue
		}
		// The last packets may not have reached the ring yet. The session ends
		// after them, because the kernel is dead.
		ctx, cancel := context.WithTimeout(ctx, ringLimit)
		rec.over(ctx)
		kept.Ring = true
		var err error
		if kept.Packets, err = rec.ring.Write(ctx, &text, ringApplication); err != nil {
			b.NoteMissing(crash.PacketsFile, err)
		}
		cancel()
	}
	b.AddPackets(kept, text.Bytes())
}
