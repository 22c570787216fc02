"""The mathematics: pure functions of torch tensors that import nothing else of the project.

Everything works on the live (trained) tokens of a batch laid end to end. `M` is their number, `R` the number of
rows; `rows` int64[M] gives each token's row, ascending, as `Batch.row_index()` makes it. Prompt and tool tokens
are not there at all, so a recursion over a row's tokens skips them by construction.

Masks are bool tensors (anything else is refused) and select with `where`, never by multiplication, so NaN at a
position that is not used cannot leak.
"""
