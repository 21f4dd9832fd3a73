"""Engine: a loaded bundle. Reading order: engine -> token_stream -> tokenizer, stop_strings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pilotfish.bindings import ContextFullError, Device, EngineInfo, Model, calls, limits

from .admission import DEFAULT_QUEUE, MOST_QUEUED, Admission
from .async_stream import AsyncTokenStream
from .batch import run_batch, run_rounds
from .conversation import check_when_full, fit_conversation
from .engine_options import engine_options
from .kernels import warn_of_slow_kernels
from .load_arguments import DEFAULT_VERIFY_HASHES, LoadArguments
from .loading import load
from .manifest import Manifest, read_manifest
from .messages import check_messages
from .option_checks import check_flag, check_int, check_sequence, prompt_array, require
from .options import INT32_MAX, GenerateKeywords, GenerateOptions
from .ort import ort_for
from .rounds import Rounds
from .sessions import conversation_array
from .sessions import load as load_session
from .sessions import save as save_session
from .speculation import DEFAULT_ACCEPTANCE, DEFAULT_CALIBRATION, SpeculationArguments
from .stop_strings import with_special_stops
from .structured import Constraints
from .token_stream import TokenStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self, Unpack

    from pilotfish.bindings import Mask, PilotfishError, RequestOptions

    from .messages import Message
    from .results import Result
    from .sessions import Session

MOST_REPEATS = 1_000_000


class Engine:
    """A bundle, loaded and ready to generate.

    Several threads may use it: rounds that they wait for at the same time share passes (``num_sequences``), without a
    change to anybody's tokens, and other Python threads run meanwhile. It belongs to its process: a fork cannot use it,
    and loads the bundle itself.
    """

    def __init__(
        self,
        bundle: str | Path,
        *,
        device: str = "cpu",
        threads: int | None = None,
        memory_budget: int | str | None = None,
        max_context: int | None = None,
        max_draft_tokens: int = limits.ENGINE.max_draft_tokens,
        num_sequences: int = limits.ENGINE.num_sequences,
        queue: int = DEFAULT_QUEUE,
        prefill_chunk: int | None = None,
        max_wait_ms: int | None = None,
        calibration: str = DEFAULT_CALIBRATION,
        draft_window: int | None = None,
        lookup_store: str | Path | None = None,
        lookup_store_size: int | str | None = None,
        acceptance: str = DEFAULT_ACCEPTANCE,
        verify_hashes: str = DEFAULT_VERIFY_HASHES,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        """Check and load a bundle folder.

        Args:
            bundle: the folder that ``pilotfish export`` wrote.
            device: "cpu", "cuda" or, to choose one of several GPUs, "cuda:1".
            threads: threads of a pass; None takes one a physical core, and no more than a CPU quota allows.
            memory_budget: bytes for everything, as 6442450944 or "6GiB"; None: what this process may have, or, on
                a GPU, what is free there. Weights of the target that do not fit stay outside of it (docs/python.md).
            max_context: tokens of prompt and output together; None takes the model's limit, at most 4096.
            max_draft_tokens: largest num_draft_tokens a generation may ask for.
            num_sequences: generations that may be open at once, each with max_context tokens. Up to 16 share passes.
            queue: generations that may wait while others leave no room in the caches, first come, first served; a
                further one is an EngineBusyError, and so is one of a thread or task that has another open itself.
            prefill_chunk: tokens of a prompt that a pass takes at most: more are faster and take more memory; None:
                256, on a GPU 512, and down to 64 where that makes the context fit.
            max_wait_ms: milliseconds that a chunk of a new prompt may hold up generations that run beside it, between
                two of their rounds: chunks are as large as what earlier ones took allows, and no smaller than 4 tokens,
                which a bound below their time cannot change. None: chunks of prefill_chunk tokens.
            calibration: what the source "auto" decides by: "kept" measures passes at the first load, under a second,
                and keeps the numbers in the user's cache folder; "refresh" measures again; "off" guesses from sizes.
            draft_window: the last tokens that the draft model sees at most; 0: the whole sequence; None: 512.
            lookup_store: a file that collects outputs, to look up drafts in; it belongs to the bundle's tokenizer.
                Written when the engine is closed.
            lookup_store_size: bytes that the file may have, as 4194304 or "4MiB", the default; the latest outputs stay.
            acceptance: when a drafted token is kept where decoding samples. "equal": when it is the token that the
                target chooses; draft and target choose with the same noise, and the text is plain decoding's for the
                seed. "rejection": by rejection sampling (Leviathan et al., 2023) where chains are drafted; the
                output follows the target's distribution but is not plain decoding's text, and the draft's
                distributions take memory.
            verify_hashes: "always" compares each file's hash with the manifest's, while it is read; "never" leaves that
                out, for files that were checked where they came from: damage goes unnoticed.
            progress: called while the bundle loads, with the stage ("reading", "measuring" passes where they have not
                been yet, or "recording" rounds of a GPU), how many bytes of weights have been read, and of how many. It
                may raise, which ends the load.

        Raises:
            PilotfishError: the subclass says what is wrong; see pilotfish.bindings.errors.
        """
        options = engine_options(
            device=device,
            threads=threads,
            memory_budget=memory_budget,
            max_context=max_context,
            max_draft_tokens=max_draft_tokens,
            num_sequences=num_sequences,
            prefill_chunk=prefill_chunk,
            max_wait_ms=max_wait_ms,
            library=str(ort_for(device)),
            speculation=SpeculationArguments(calibration, draft_window, lookup_store, lookup_store_size, acceptance),
            loading=LoadArguments(verify_hashes, progress),
        )
        check_int("queue", queue, 0, MOST_QUEUED)
        if options.device is Device.CPU:
            warn_of_slow_kernels()
        self._has_store = lookup_store is not None
        self._max_draft_tokens = max_draft_tokens
        self._manifest = read_manifest(bundle)
        self._handle, texts = load(self._manifest, options)
        self._tokenizer = texts.tokenizer
        self._chat_template, self._tool_template = texts.chat_template, texts.tool_template
        self._rounds = Rounds(min(num_sequences, limits.MOST_TOGETHER))
        self._lock = self._rounds.lock
        self._admission = Admission(self._rounds, queue)
        self._info = calls.engine_info(self._handle)
        self._num_ids = min(self._manifest.tokenizer.size, self._info.vocab_size)
        self._constraints = Constraints(self._tokenizer, self._num_ids, self._manifest.tokenizer.eos_ids)
        self._spellings: Sequence[bytes] | None = None

    @property
    def manifest(self) -> Manifest:
        """The bundle's description."""
        return self._manifest

    @property
    def info(self) -> EngineInfo:
        """Sizes of what is loaded, and the free and retained cache blocks now."""
        with self._lock:
            return calls.engine_info(self._handle)

    def generate(self, prompt: str | Sequence[int], **options: Unpack[GenerateKeywords]) -> Result:
        """Continue a prompt (text or token ids) and return the whole continuation.

        Args:
            prompt: text or token ids.
            options: max_new_tokens, temperature, stop and all other fields of GenerateOptions, which explains them.

        Raises:
            InvalidArgumentError: a value outside its range.
            ContextFullError: the prompt leaves no room in the context.
            EngineBusyError: others hold the cache blocks that this one needs, and it cannot wait (``queue``).
            TypeError: an option that does not exist.
        """
        with self.stream(prompt, **options) as stream:
            return stream.result()

    def generate_batch(
        self, prompts: Sequence[str | Sequence[int]], **options: Unpack[GenerateKeywords]
    ) -> list[Result]:
        """generate() for each prompt, with the same results, ``num_sequences`` at a time in shared passes.

        When one ends the next begins. On a GPU rounds that draft in different ways take turns.

        Args:
            prompts: texts or token ids; of conversations those of encode_chat().
            options: generate()'s, as are the errors. One prompt's error ends all.
        """
        check_sequence("prompts", prompts, "prompts")
        checked = GenerateOptions(**options)
        all_ids = [self._ids_of(prompt) for prompt in prompts]
        for index, ids in enumerate(all_ids):
            self._prompt_array(ids)
            if len(ids) >= self._info.max_context:
                raise ContextFullError(
                    f"prompt {index} has {len(ids)} tokens, the context holds {self._info.max_context} and one must be "
                    "left for the output"
                )
        return run_batch([partial(self._open, ids, checked) for ids in all_ids], self._rounds)

    def stream(self, prompt: str | Sequence[int], **options: Unpack[GenerateKeywords]) -> TokenStream:
        """Continue a prompt and yield one Event a token; arguments and errors are generate()'s."""
        return self._open(self._ids_of(prompt), GenerateOptions(**options))

    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
        parse_special: bool = False,
        when_full: str = "error",
        **options: Unpack[GenerateKeywords],
    ) -> Result:
        """Answer a conversation. What an earlier one has in common with it is not computed again, in neither model.

        Args:
            messages: {"role", "content"}, and whatever else the bundle's chat template reads, such as tool_calls.
            tools: JSON schemas of the functions the model may call, for the template, or for the bundle's own template
                for conversations with tools.
            template_variables: what else the template reads, such as {"enable_thinking": False}; one that it does not
                read is an error.
            parse_special: whether special tokens that messages spell, such as <|im_end|>, become those tokens; by
                default they are text, so that no message can end its turn or begin another.
            when_full: "error" refuses a conversation that does not fit the context; "drop_oldest" forgets its oldest
                turns, but no instructions, until max_new_tokens or a quarter of the context are left for the answer.
            options: generate()'s, as are the errors.

        Raises:
            InvalidArgumentError: the template refuses the messages.
            UnsupportedError: the bundle has no chat template.
        """
        with self.stream_chat(
            messages,
            tools=tools,
            template_variables=template_variables,
            parse_special=parse_special,
            when_full=when_full,
            **options,
        ) as stream:
            return stream.result()

    def stream_chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
        parse_special: bool = False,
        when_full: str = "error",
        **options: Unpack[GenerateKeywords],
    ) -> TokenStream:
        """Answer a conversation and yield one Event a token; arguments and errors are chat()'s."""
        checked = GenerateOptions(**options)
        ids, num_dropped = self._fit_chat(
            partial(self.encode_chat, tools=tools, template_variables=template_variables, parse_special=parse_special),
            messages,
            when_full,
            checked.max_new_tokens,
        )
        return self._open(ids, checked, num_dropped)

    def prepare(self, prompt: str | Sequence[int], **options: Unpack[GenerateKeywords]) -> Callable[[], TokenStream]:
        """All that stream() does before it reserves cache blocks: the call that is returned opens the stream.

        For a thread that runs many generations with step_together() and must not wait for one of them to be checked
        and its schema compiled. Arguments and errors are generate()'s; the call alone raises EngineBusyError, and never
        waits in the engine's queue.
        """
        ids = self._ids_of(prompt)
        checked = GenerateOptions(**options)
        if len(ids) >= self._info.max_context:
            raise ContextFullError(
                f"the prompt has {len(ids)} tokens, the context holds {self._info.max_context} and one must be left "
                "for the output"
            )
        return self._prepared(ids, checked)

    def step_together(self, streams: Sequence[TokenStream]) -> list[PilotfishError | None]:
        """Run the next round of each of these streams of this engine, in passes that they share.

        What a round gave is had by next_ready(); nobody else may iterate the streams meanwhile. Up to 16 share
        passes; on a GPU rounds that draft in different ways take turns.

        Returns:
            One a stream: what its generation failed with, None where it did not.

        Raises:
            InvalidArgumentError: one is no stream of this engine, is there twice, or has ended.
        """
        check_sequence("streams", streams, "streams")
        for index, stream in enumerate(streams):
            is_ours = isinstance(stream, TokenStream) and stream.belongs_to(self._rounds)
            require(f"streams[{index}]", stream, is_ours, "a stream of this engine")
        return run_rounds(streams, self._rounds)

    @property
    def special_ids(self) -> Mapping[str, int]:
        """Ids of the tokens that text leaves out, by their spelling."""
        return self._tokenizer.special_ids

    def token_bytes(self, token_id: int) -> bytes:
        """What a token id spells, special tokens by their names; a part of a character may be one token.

        Raises:
            InvalidArgumentError: an id outside the vocabulary.
            UnsupportedError: the tokenizer is of a kind whose tokens have no bytes.
        """
        check_int("token_id", token_id, 0, self._num_ids - 1)
        if self._spellings is None:
            self._spellings = self._tokenizer.spellings(self._num_ids)
        return self._spellings[token_id]

    def astream(self, prompt: str | Sequence[int], **options: Unpack[GenerateKeywords]) -> AsyncTokenStream:
        """stream() for asyncio: ``async for event in engine.astream(...)``. Rounds run in a worker thread."""
        return self._open_async(self._ids_of(prompt), GenerateOptions(**options))

    def astream_chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
        parse_special: bool = False,
        when_full: str = "error",
        **options: Unpack[GenerateKeywords],
    ) -> AsyncTokenStream:
        """stream_chat() for asyncio, as astream() is stream()."""
        checked = GenerateOptions(**options)
        ids, num_dropped = self._fit_chat(
            partial(self.encode_chat, tools=tools, template_variables=template_variables, parse_special=parse_special),
            messages,
            when_full,
            checked.max_new_tokens,
        )
        return self._open_async(ids, checked, num_dropped)

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt, with the begin-of-text id where the model expects one.

        Raises:
            InvalidArgumentError: it is no text.
        """
        return self._tokenizer.encode(text)

    def encode_chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
        parse_special: bool = False,
    ) -> list[int]:
        """Token ids of a conversation, through the bundle's chat template, up to where the answer begins.

        Arguments and errors are chat()'s.
        """
        if tools is not None:
            check_sequence("tools", tools, "JSON schemas")
        template = self._tool_template if tools is not None and len(tools) else self._chat_template
        check_flag("parse_special", parse_special)
        marked = None if parse_special else self._tokenizer.marked
        return self._tokenizer.encode_chat(template.render(messages, tools, template_variables, marked=marked))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids; special tokens are left out.

        Raises:
            InvalidArgumentError: an id outside the vocabulary.
        """
        check_sequence("ids", ids, "token ids")
        return self._tokenizer.decode(self._prompt_array(ids).tolist()) if len(ids) else ""

    def logits(self, ids: Sequence[int], model: Model = Model.TARGET) -> NDArray[np.float32]:
        """A model's logits at every position of ids.

        Args:
            ids: token ids, at least one and no more than the context holds.
            model: Model.TARGET or Model.DRAFT, whose logits are -inf where its vocabulary is smaller.

        Returns:
            [len(ids), vocab_size], unprocessed.

        Raises:
            InvalidArgumentError: an id outside the vocabulary, or a model that the bundle does not have.
            ContextFullError: more ids than the context holds.
            EngineBusyError: other generations hold the cache blocks that this needs.
        """
        array = self._prompt_array(ids)
        require("model", model, isinstance(model, Model), "a Model, such as Model.TARGET")
        return self._rounds.reserve(lambda: calls.engine_logits(self._handle, model, array, self._info.vocab_size))

    def time_pass(
        self, num_rows: int, *, context: int, num_repeats: int, model: Model = Model.TARGET
    ) -> NDArray[np.float64]:
        """Time passes.

        Args:
            num_rows: tokens of a pass.
            context: tokens that the cache holds before it.
            num_repeats: passes, at most a million.
            model: whose passes.

        Returns:
            Seconds of each pass: [num_repeats].

        Raises:
            InvalidArgumentError: a number outside its range, or a model that the bundle does not have.
            EngineBusyError: other generations hold the cache blocks that this needs.
        """
        _check_pass(num_rows, context, model)
        check_int("num_repeats", num_repeats, 1, MOST_REPEATS)
        return self._rounds.reserve(lambda: calls.engine_time_pass(self._handle, model, num_rows, context, num_repeats))

    def pass_cost(self, num_rows: int, *, context: int, model: Model = Model.TARGET) -> float:
        """Seconds that a pass of num_rows tokens is taken to cost when the source "auto" plans a round.

        Arguments and errors are time_pass()'s; Model.HEAD has a cost too. Nothing runs, so that nothing is busy.
        """
        _check_pass(num_rows, context, model)
        with self._lock:
            return calls.engine_cost(self._handle, model, num_rows, context)

    def save_lookup(self) -> None:
        """Write the lookup store's file now; closing the engine does it too.

        Raises:
            InvalidArgumentError: the engine was opened without a store.
            BundleFileMissingError: the file cannot be written.
        """
        with self._lock:
            calls.engine_save_lookup(self._handle)

    def save_session(self, path: str | Path, prompt: str | Sequence[int], *, note: str = "") -> int:
        """Save a conversation so that it goes on in another process: its token ids, and what the caches hold of it.

        Generations that have ended left it there (``reuse_prefix``): of the target, the draft model and the head, in
        whole blocks of ``info.block_size`` tokens.

        Args:
            path: the file, which is written as a whole or not at all, for its owner's eyes only.
            prompt: the conversation so far as text or token ids: a prompt, and the token_ids that continued it.
            note: text that load_session() gives back, such as the messages, at most 16 MiB.

        Returns:
            How many tokens' caches are in the file. A generation runs those after them again.

        Raises:
            InvalidArgumentError: an id outside the vocabulary.
            BundleFileMissingError: the file cannot be written.
        """
        array = conversation_array(self._ids_of(prompt), self._num_ids)
        return save_session(self._handle, self._rounds, path, array, note)

    def load_session(self, path: str | Path) -> Session:
        """Load what save_session() saved, and keep it as if its generations had run here.

        Generations that begin with its token ids go on with the same bits, drafts included. The file may be
        anybody's: what is wrong with it is an error.

        Raises:
            BundleFileMissingError: the file does not exist, or cannot be read.
            PairMismatchError: it is of another bundle.
            BundleVersionError: it was saved by another version of pilotfish, or on another kind of device.
            BundleCorruptError: it is damaged, cut short, or no session.
            ContextFullError: the context is too small for what it has cached.
            EngineBusyError: open generations hold the cache blocks that it needs.
        """
        return load_session(self._handle, self._rounds, path)

    def check(self) -> None:
        """Raise InternalError if the caches break an invariant (free + used + retained = total, no owner unknown)."""
        with self._lock:
            calls.engine_info(self._handle)

    def close(self) -> None:
        """Save the lookup store, if there is one, and free the models; closing twice is fine.

        Streams that are still open keep the models until they are closed.
        """
        with self._lock:
            try:
                if self._has_store and not self._handle.closed:
                    calls.engine_save_lookup(self._handle)
            finally:
                self._handle.close()
                self._admission.wake()  # whoever waits is told that it is closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ids_of(self, prompt: str | Sequence[int]) -> Sequence[int]:
        return self.encode(prompt) if isinstance(prompt, str) else prompt

    def _fit_chat(
        self, encode: Callable[[Sequence[Message]], list[int]], messages: Sequence[Message], when_full: str, room: int
    ) -> tuple[list[int], int]:
        check_when_full(when_full)
        check_messages(messages)
        if when_full == "error":
            return encode(messages), 0
        limit = self._info.max_context - min(room, self._info.max_context // 4)
        return fit_conversation(messages, encode, limit)

    def _open(self, ids: Sequence[int], options: GenerateOptions, num_dropped_messages: int = 0) -> TokenStream:
        return self._admission.open(self._prepared(ids, options, num_dropped_messages))

    def _prepared(
        self, ids: Sequence[int], options: GenerateOptions, num_dropped_messages: int = 0, *, keeps_thread: bool = True
    ) -> Callable[[], TokenStream]:
        array = self._prompt_array(ids)
        options = with_special_stops(options, self._tokenizer.special_ids)
        constraint = self._constraints.of(options)
        request = self._request_for(options, constraint.mask if constraint else None)
        return partial(
            TokenStream,
            self._handle,
            self._rounds,
            self._tokenizer,
            ids=array,
            request=request,
            stop_strings=options.stop_strings,
            num_dropped_messages=num_dropped_messages,
            explain=options.explain,
            constraint=constraint,
            keeps_thread=keeps_thread,
        )

    def _open_async(self, ids: Sequence[int], options: GenerateOptions, num_dropped: int = 0) -> AsyncTokenStream:
        self._prompt_array(ids)  # what is wrong with the arguments shows here, not at the first event
        self._request_for(with_special_stops(options, self._tokenizer.special_ids))
        prepare = partial(self._prepared, ids, options, num_dropped, keeps_thread=False)
        return AsyncTokenStream(prepare, self._admission, num_prompt_tokens=len(ids))

    def _request_for(self, options: GenerateOptions, mask: Mask | None = None) -> RequestOptions:
        return options.to_request(
            has_draft=self._info.has_draft,
            has_head=self._info.has_head,
            max_draft_tokens=self._max_draft_tokens,
            mask=mask,
        )

    def _prompt_array(self, ids: Sequence[int]) -> NDArray[np.int32]:
        return prompt_array(ids, self._num_ids)


def _check_pass(num_rows: int, context: int, model: Model) -> None:
    check_int("num_rows", num_rows, 1, INT32_MAX)
    check_int("context", context, 0, INT32_MAX)
    require("model", model, isinstance(model, Model), "a Model, such as Model.TARGET")
