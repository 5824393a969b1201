package limit

// recordSizes are the sizes that records have: even, and such that a typical
// Log or Counter loses little.
var recordSizes = [...]int{
	40, 48, 64, 80, 96, 128, 176, 240, 384, 512, 768, 1 << 10, 1536, 2 << 10, 3 << 10,
	4 << 10, 6 << 10, 8 << 10, 12 << 10, 16 << 10, 20 << 10, 24 << 10, 32 << 10, 40 << 10,
}

const (
	smallSizes = 8 // so many of them share chunks
	leastChunk = 256
	mostChunk  = 2 << 10
	chunkCost  = 32 // of a chunk in the list of them, bytes
	slotBits   = 6  // of a reference
	chunkBits  = 20
)

// sizeClass returns which of recordSizes is the smallest of at least size bytes.
func sizeClass(size int) uint8 {
	for i, s := range recordSizes {
		if s >= size {
			return uint8(i)
		}
	}
	return uint8(len(recordSizes) - 1)
}

// slab holds records in chunks of one size each, without pointers, so that the
// collector has nothing to look through. Of all chunks of a size only the last
// has room: who is freed is replaced by the last record. So no more than a chunk a
// size is lost, whatever sizes come and go.
type slab struct {
	chunks []chunk  // the first is none, so that no reference is 0
	unused []uint32 // numbers of those that hold nothing
	spares [][]byte
	last   [len(recordSizes)]uint32
	chunk  int // bytes of a chunk of small records
	prices [len(recordSizes)]int32
	held   int // bytes of all chunks and spares
	costs  int // what the records cost: held is not more, but for the last chunks
}

type chunk struct {
	data  []byte
	prev  uint32 // of the same size
	class uint8
	n     uint8 // records
}

// chunkFor returns how large chunks are where all may take so many bytes.
func chunkFor(bytes int) int {
	size := leastChunk
	for size < mostChunk && size < bytes/64 {
		size *= 2
	}
	return size
}

// newSlab returns an empty slab that takes nothing yet.
func newSlab(chunkBytes int) slab {
	s := slab{chunk: chunkBytes}
	for class, size := range recordSizes {
		s.prices[class] = int32(size + chunkCost)
		if n := s.slots(uint8(class)); n > 1 {
			s.prices[class] = int32((chunkBytes + chunkCost + n - 1) / n)
		}
	}
	return s
}

// slots returns how many records of a class a chunk has.
func (s *slab) slots(class uint8) int {
	return max(1, min(s.chunk/recordSizes[class], 1<<slotBits))
}

// cost returns what a record takes, its part of the chunk included.
func (s *slab) cost(class uint8) int { return int(s.prices[class]) }

func (s *slab) at(ref uint32) *chunk { return &s.chunks[ref>>slotBits&(1<<chunkBits-1)] }

func (s *slab) class(ref uint32) uint8 { return s.at(ref).class }

// record returns the record of a reference, until the slab changes.
func (s *slab) record(ref uint32) record {
	c := s.at(ref)
	size := recordSizes[c.class]
	from := int(ref&(1<<slotBits-1)) * size
	return c.data[from : from+size : from+size]
}

// alloc returns a new record of zeros.
func (s *slab) alloc(class uint8) (ref uint32) {
	id := s.last[class]
	if id == 0 || int(s.chunks[id].n) == s.slots(class) {
		id = s.begin(class)
	}
	c := &s.chunks[id]
	ref = id<<slotBits | uint32(c.n)
	c.n++
	s.costs += s.cost(class)
	clear(s.record(ref))
	return ref
}

// begin makes a chunk the last of its class.
func (s *slab) begin(class uint8) (id uint32) {
	if s.chunks == nil {
		s.chunks, s.held = make([]chunk, 1), chunkCost
	}
	if n := len(s.unused); n > 0 {
		id, s.unused = s.unused[n-1], s.unused[:n-1]
	} else {
		id = uint32(len(s.chunks))
		s.chunks = append(s.chunks, chunk{})
	}
	c := chunk{prev: s.last[class], class: class}
	switch n := len(s.spares); {
	case s.slots(class) == 1:
		c.data = make([]byte, recordSizes[class])
		s.held += recordSizes[class] + chunkCost
	case n > 0:
		c.data, s.spares = s.spares[n-1], s.spares[:n-1]
	default:
		c.data = make([]byte, s.chunk)
		s.held += s.chunk + chunkCost
	}
	s.chunks[id], s.last[class] = c, id
	return id
}

// free frees a record. The one at moved, if any, has taken its place.
func (s *slab) free(ref uint32) (moved uint32) {
	class := s.class(ref)
	id := s.last[class]
	c := &s.chunks[id]
	c.n--
	s.costs -= s.cost(class)
	if last := id<<slotBits | uint32(c.n); last != ref {
		moved = last
		copy(s.record(ref), s.record(last))
	}
	if c.n == 0 {
		s.end(id, c)
	}
	return moved
}

func (s *slab) end(id uint32, c *chunk) {
	s.last[c.class] = c.prev
	if s.slots(c.class) > 1 {
		s.spares = append(s.spares, c.data)
	} else {
		s.held -= recordSizes[c.class] + chunkCost
	}
	*c = chunk{}
	s.unused = append(s.unused, id)
}

// trim gives spare chunks back.
func (s *slab) trim() {
	s.held -= len(s.spares) * (s.chunk + chunkCost)
	s.spares = nil
}

// next returns the first record from ref on, after the last one the first. There
// must be one.
func (s *slab) next(ref uint32) uint32 {
	id, slot := ref>>slotBits, ref&(1<<slotBits-1)
	for {
		switch {
		case id >= uint32(len(s.chunks)):
			id, slot = 1, 0
		case slot >= uint32(s.chunks[id].n):
			id, slot = id+1, 0
		default:
			return id<<slotBits | slot
		}
	}
}
